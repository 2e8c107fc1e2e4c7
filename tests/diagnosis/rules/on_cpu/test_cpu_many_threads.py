from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.diagnosis.rules.on_cpu import cpu_many_threads
from pinchpoint.trace import RunFacts

MS, US = 1_000_000, 1_000
LARGE, ROW = "[[256, 1024], [1024, 1024]]", "[[1, 512], [512, 512]]"


def _trace(shapes=LARGE, **facts):
    """Steps of 10 ms, 8 of them a product, without a device."""
    builder = TraceBuilder()
    builder.devices = []
    for step in range(5):
        builder.step(step, step * 10 * MS, 10 * MS)
        at = step * 10 * MS + 10 * US
        builder.op("aten::mm", at, 8 * MS, shapes=shapes, dtypes='["float", "float"]')
    known = {"torch_threads": 2, "cores_allowed": 2.0, "cores_there": 2, "processes": 1}
    return replace(builder.trace(), run=RunFacts(**(known | facts)))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        pytest.param({"cores_of_others": 1.8}, r"2 cores, of which other .* 1\.8", id="busy"),
        pytest.param({"torch_threads": 64, "cores_allowed": 4.0}, "64 threads .* 4 cores", id="q"),
    ],
)
def test_threads_without_cores_are_undecided(facts, said):
    with pytest.raises(NotChecked, match=said) as undecided:
        list(cpu_many_threads.check(_trace(**facts)))
    assert undecided.value.fits
    assert "--knob omp_threads=" in undecided.value.record.phrase


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"cores_of_others": 0.2}, id="as many as cores"),
        pytest.param({"cores_of_others": 1.8, "torch_threads": 1}, id="one waits for no other"),
        pytest.param({"cores_of_others": 1.8, "shapes": ROW}, id="nothing to share out"),
    ],
)
def test_what_has_its_cores_is_clear(facts):
    outcome = {o.id: o.answer for o in diagnose(_trace(**facts)).outcomes}
    assert outcome["cpu-many-threads"] == "clear"


def test_without_facts_it_is_not_checked():
    with pytest.raises(NotChecked, match="not recorded"):
        list(cpu_many_threads.check(_trace(torch_threads=None)))
