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


NODE = "autograd::engine::evaluate_function: MulBackward0"


def saving(*, layers=16, size=8 << 20, back=1.0, other_size=0, alone=False):
    """Each layer's activations go to the host in forward, which waits, and back in backward."""
    p = Program()
    engine = p.builder.thread("autograd")
    down, up = (MemoryKind.DEVICE, MemoryKind.PINNED), (MemoryKind.PINNED, MemoryKind.DEVICE)
    for _ in p.steps(5):
        for _ in range(layers):
            with p.row("aten::mm"):
                p.kernel("gemm", 200)
            with p.frame("torch/autograd/graph.py(391): pack_to_cpu"):
                p.host("aten::empty", 300, values=["[1]", "6", "0", "", "True", ""])
                with p.row("aten::copy_"):
                    p.copy(size, 400, *down)
                    p.sync()
        p.thread = 0 if alone else engine
        for _ in range(round(back * layers)):
            with p.row("aten::add" if alone else NODE):
                with p.row("aten::to"), p.row("aten::copy_"):
                    p.copy(other_size or size, 400, *up)
                with p.row("aten::mm"):
                    p.kernel("gemm", 200)
        p.thread = 0
        p.sync()
    return p.trace()


def test_what_goes_and_comes_back_is_one_cause(outcome, ranked):
    (finding,) = outcome("offloaded-to-host", saving()).findings
    assert finding.summary.startswith("Saved tensors go to the host and come back")
    assert finding.evidence[0].value == 16 * (8 << 20)
    assert finding.cost_ns_per_step == 2 * 16 * 400_000
    assert ranked(saving())[0] == "offloaded-to-host"


def test_without_it_the_products_are_left(predicted):
    assert predicted(saving(), "offloaded-to-host") == pytest.approx(2 * 16 * 200_000, rel=0.1)


def test_without_a_backward_pass_they_are_just_tensors(outcome):
    (finding,) = outcome("offloaded-to-host", saving(alone=True)).findings
    assert finding.summary.startswith("Tensors go to the host and come back")


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(saving(layers=5), id="a handful"),
        pytest.param(saving(size=1 << 20), id="small"),
        pytest.param(saving(back=0.5), id="half of it stays there"),
        pytest.param(saving(other_size=6 << 20), id="something else comes"),
    ],
)
def test_results_and_batches_are_not_meant(outcome, trace):
    assert outcome("offloaded-to-host", trace).answer == "clear"
