from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.on_cpu.cpu_compiled_operation import check
from pinchpoint.trace import RunFacts

MS, MB = 1_000_000, 1_000_000
MASK, PRODUCT = ("transpose_copy_fusion", 80, 40 * MB, None), ("dot.2", 12, 40 * MB, 16 * MB)


def _steps(*ops, devices=(), count=4):
    """Steps of 100 ms, four or as many, with these operations: name, ms, bytes, FLOPs."""
    built = TraceBuilder(devices=devices)
    for number in range(count):
        at = number * 100 * MS
        built.step(number, at, 100 * MS)
        for name, took, moved, flops in ops:
            told = {} if flops is None else {"flops": flops}
            row = {"start_ns": at, "duration_ns": took * MS, "bytes": moved}
            built.add("compiled_ops", op=name, source="/code/model.py:41", **row, **told)
            at += took * MS
    return built.trace()


def test_what_takes_many_times_what_its_bytes_need():
    """40 MB are 10 ms on a slow core; the product shows that this machine is a fifth slower."""
    (found,) = check(_steps(MASK, PRODUCT))
    assert found.cost_ns_per_step == 80 * MS
    assert found.saving_ns_per_step[1] == pytest.approx(68 * MS, rel=0.01)
    assert found.summary == (
        "transpose_copy_fusion takes 80.0 ms a step at model.py:41, 80.0 ms in its fastest run,"
        " where one core of a slow server would take 10.0 ms for its 40 MB"
    )
    assert (found.location.file, found.location.line) == ("/code/model.py", 41)


@pytest.mark.parametrize(
    ("count", "others", "told"), [(2, 1.9, False), (2, 0.1, True), (4, 1.9, True)]
)
def test_of_few_runs_none_may_have_had_a_core(count, others, told):
    facts = RunFacts(cores_allowed=2.0, cores_there=2, cores_of_others=others)
    trace = replace(_steps(MASK, PRODUCT, count=count), run=facts)
    if told:
        assert len(list(check(trace))) == 1
    else:
        with pytest.raises(NotChecked, match="other programs had the cores"):
            list(check(trace))


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(_steps(MASK, ("dot.2", 24, 40 * MB, 16 * MB)), id="so is all of it"),
        pytest.param(_steps(("tanh_fusion", 50, 40 * MB, None), PRODUCT), id="as exponentials do"),
        pytest.param(_steps(("sort.3", 60, 40 * MB, None), PRODUCT), id="a sort has no such limit"),
        pytest.param(
            _steps(MASK, PRODUCT, devices=TraceBuilder().trace().devices), id="on a device"
        ),
        pytest.param(replace(_steps(MASK, PRODUCT), compiled_ops=None), id="nothing compiled"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []


def test_a_small_part_of_the_step_is_seen(outcome):
    said = outcome("cpu-compiled-operation", _steps(("copy_fusion", 14, 4 * MB, None), PRODUCT))
    assert (said.answer, said.why) == ("smaller", "smaller than 15 % of the step: 12.7 %")
