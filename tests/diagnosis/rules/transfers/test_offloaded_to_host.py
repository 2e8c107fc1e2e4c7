import pytest

from pinchpoint.trace import MemoryKind
from program import Program


def streaming(layers=16, size=128 << 20, *, source=MemoryKind.PINNED, stream=7, waits=True):
    """Each layer's weights are copied in 4 ms, then used for 1 ms."""
    p = Program()
    for _ in p.steps(5):
        for _ in range(layers):
            with p.row("aten::copy_"):
                p.copy(size, 4_000, source, MemoryKind.DEVICE, stream=stream, waits=waits)
            with p.row("aten::mm"):
                p.kernel("gemm", 1_000)
        p.sync()
    return p.trace()


def test_weights_on_the_host_are_named_with_what_moves(outcome):
    (finding,) = outcome("offloaded-to-host", streaming()).findings
    assert finding.evidence[0].value == 16 * (128 << 20)
    assert finding.evidence[1].value == pytest.approx((128 << 20) / 4e-3, rel=1e-6)
    assert finding.cost_ns_per_step == pytest.approx(16 * 4_000_000, rel=0.02)


def test_on_the_device_only_the_computing_is_left(predicted):
    assert predicted(streaming(), "offloaded-to-host") == pytest.approx(16e6, rel=0.1)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(streaming(layers=4), id="a batch in four tensors"),
        pytest.param(streaming(size=1 << 20), id="small"),
        pytest.param(streaming(source=MemoryKind.DEVICE), id="within the device"),
    ],
)
def test_other_copies_are_not_meant(outcome, trace):
    assert outcome("offloaded-to-host", trace).answer == "clear"


def test_copies_beside_the_computing_are_well_placed(outcome):
    p = Program()
    for _ in p.steps(5):
        for _ in range(16):
            p.copy(128 << 20, 1_000, MemoryKind.PINNED, MemoryKind.DEVICE, stream=9)
            p.kernel("gemm", 4_000)
        p.sync()
    assert outcome("offloaded-to-host", p.trace()).answer == "clear"
