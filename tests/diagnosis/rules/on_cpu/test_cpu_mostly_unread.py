"""Programs compiled for the CPU that permute or compute much of which little is read."""

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.registry import ask, rules
from pinchpoint.diagnosis.rules.on_cpu.cpu_mostly_unread import check

MS = 1_000_000
DRAW, MODEL = "/code/draw.py:6", "/code/model.py:9"
PERMUTED = {"read_at": "/code/model.py:7", "read_ratio": 0.01, "read_of": "permutation"}


def _steps(*, sort_ms=60, beside_ms=0, devices=(), **told):
    """Ten steps of 100 ms: a sort, the loop of its bits (2 ms), and a product of 20 ms.

    ``beside_ms``: of the sort that another thread multiplies meanwhile.
    """
    built = TraceBuilder(devices=devices)
    for number in range(10):
        at = number * 100 * MS
        built.step(number, at, 100 * MS)
        rows = (
            ("xor.1", at, 2, 1, {"source": DRAW, "loop": DRAW}),
            ("sort.1", at + 2 * MS, sort_ms, 1, {"source": DRAW, **told}),
            ("dot.3", at + 70 * MS, 20, 1, {"source": MODEL, "loop": MODEL}),
            ("dot.4", at + 2 * MS, beside_ms, 2, {"source": MODEL}),
        )
        for op, start, ms, thread, more in rows:
            if ms:
                built.op(op, start, ms * MS, thread=thread)
                built.add("compiled_ops", op=op, start_ns=start, duration_ns=ms * MS, **more)
    return built.trace()


def test_a_permutation_of_which_little_is_taken():
    (found,) = check(_steps(**PERMUTED))
    assert found.summary == (
        "Of a permutation made of random numbers 1 % is taken at draw.py:6:"
        " 60.0 ms of each recorded step in 1 operations"
    )
    assert (found.location.file, found.location.line) == ("/code/draw.py", 6)
    assert found.fix.startswith("Draw what is taken without permuting all")
    # 99 % of 60 ms, less 5 % for doubt; with its bits 99 % of 62.
    assert found.saving_ns_per_step == pytest.approx((56.43 * MS, 61.38 * MS))
    assert found.likely_saving_ns == pytest.approx(61.38 * MS)
    assert found.cost_ns_per_step == 62 * MS


def test_at_least_what_nothing_else_ran_beside_is_won():
    (found,) = check(_steps(beside_ms=40, **PERMUTED))
    assert found.saving_ns_per_step[0] == pytest.approx(0.95 * 0.99 * 20 * MS)
    assert found.likely_saving_ns == pytest.approx(0.99 * 22 * MS)


def test_results_have_another_way_out():
    (found,) = check(_steps(**PERMUTED | {"read_of": "results"}))
    assert "permut" not in found.summary + found.fix
    assert found.saving_ns_per_step[1] == pytest.approx(59.4 * MS)  # no bits


def test_a_sort_of_which_one_end_is_read():
    (found,) = check(_steps(**PERMUTED | {"read_of": "sort"}))
    assert found.summary.startswith("One end of what is sorted is read, and selecting it takes 1 %")
    assert "top_k" in found.hint
    assert found.likely_saving_ns == pytest.approx(59.4 * MS)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(_steps(), id="a permutation of which all is read"),
        pytest.param(_steps(devices=TraceBuilder().trace().devices, **PERMUTED), id="on a device"),
    ],
)
def test_it_stays_quiet(trace):
    assert list(check(trace)) == []


def test_a_small_part_of_the_step_is_seen(outcome):
    said = outcome("cpu-mostly-unread", _steps(sort_ms=3, **PERMUTED))
    assert (said.answer, said.why) == ("smaller", "smaller than 5 % of the step: 3.0 %")


def test_the_rule_for_devices_has_nothing_to_say():
    assert ask(rules()["mostly-unread"], _steps(**PERMUTED)).answer == "not applicable"
