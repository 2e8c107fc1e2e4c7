import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.rules.communication.nccl_slow_transport import REACHED_RATIO
from pinchpoint.hardware.specs import find_spec
from program import Program

ELEMENTS = 16 << 20  # of four bytes
LINK_BYTES_PER_S = find_spec(TraceBuilder().devices[0].name).link_bytes_per_s / 2


def reducing(rate_bytes_per_s, *, spread=1.0, elements=ELEMENTS, group=2):
    """One all-reduce a step at this bus bandwidth (of two ranks: bytes over time)."""
    p = Program()
    args = {"In msg nelems": elements, "dtype": "Float"}
    for i in p.steps(6):
        us = 4 * elements / rate_bytes_per_s * 1e6
        p.kernel("backward", 1_000)
        p.collective(us * (spread if i % 2 else 1), args | {"Group size": group})
    return p.trace()


def test_compares_the_best_call_with_the_link(outcome):
    (finding,) = outcome("nccl-slow-transport", reducing(1e9)).findings
    assert finding.evidence[0].value == pytest.approx(1e9, rel=0.001)
    assert finding.evidence[1].value == pytest.approx(REACHED_RATIO * LINK_BYTES_PER_S)
    assert finding.cost_ns_per_step == pytest.approx(4 * ELEMENTS, rel=0.001)


def test_over_the_link_the_same_bytes_take_little(predicted):
    after_ns = 1e6 + 4 * ELEMENTS / (REACHED_RATIO * LINK_BYTES_PER_S) * 1e9
    assert predicted(reducing(1e9), "nccl-slow-transport") == pytest.approx(after_ns, rel=0.05)


@pytest.mark.parametrize(
    "trace",
    [
        reducing(0.5 * LINK_BYTES_PER_S),
        reducing(1e9, spread=3.0),
        reducing(1e9, elements=1 << 20),
        reducing(5e9, group=64),
    ],
    ids=["fast", "waits for a late rank", "small", "between nodes"],
)
def test_other_collectives_are_fine(outcome, trace):
    assert outcome("nccl-slow-transport", trace).answer == "clear"
