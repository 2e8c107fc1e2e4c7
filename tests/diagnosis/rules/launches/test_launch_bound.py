import pytest

from pinchpoint.trace import ApiKind, DeviceKind
from program import LAUNCH_US, Program

KERNELS, HOST_US = 60, 50  # of the host for each operator


def many(kernel_us, *, count=KERNELS, read=False):
    """Operators that each take HOST_US and launch a kernel."""
    p = Program()
    for _ in p.steps(6):
        for _ in range(count):
            with p.row("aten::add"):
                p.kernel("vectorized_elementwise_kernel", kernel_us)
                if read:
                    p.sync()
                p.busy(HOST_US - LAUNCH_US)
    return p.trace()


def test_counts_launches_and_shows_the_kernel_of_median_length(outcome):
    (finding,) = outcome("launch-bound", many(3)).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence == {
        "launches": KERNELS,
        "a kernel of median length": 3_000,
        "device time of these kernels": KERNELS * 3_000,
    }
    assert finding.location.file == "train.py"


def test_as_a_graph_the_step_takes_what_the_device_takes(predicted):
    assert predicted(many(3), "launch-bound") < 2 * KERNELS * 3_000


def test_kernels_that_outlast_their_launch_hide_it(ranked):
    assert "launch-bound" not in ranked(many(60))


@pytest.mark.parametrize(
    "trace", [many(3, count=10), many(3, read=True)], ids=["few launches", "each waits"]
)
def test_is_quiet_where_launches_are_not_the_trouble(outcome, trace):
    assert outcome("launch-bound", trace).answer == "clear"


def test_a_replayed_graph_is_one_launch(outcome):
    p = Program()
    for _ in p.steps(6):
        p.call("cudaGraphLaunch", ApiKind.GRAPH_LAUNCH, 20)
        call = p.builder.rows["api_calls"][-1]
        for i in range(KERNELS):
            p.builder.add(
                "device_ops",
                name="elementwise",
                kind=DeviceKind.KERNEL,
                start_ns=p.at + i * 3_000,
                duration_ns=2_900,
                device=0,
                stream=7,
                correlation=call["correlation"],
                graph_node=i,
            )
        p.busy(KERNELS * 3 + 10)
    assert outcome("launch-bound", p.trace()).answer == "clear"


def test_a_device_that_keeps_up_with_nobody_is_not_waiting(outcome):
    p = Program()
    for _ in p.steps(6):
        for _ in range(KERNELS):
            with p.row("aten::add"):
                p.kernel("vectorized_elementwise_kernel", 18)
    assert outcome("launch-bound", p.trace()).answer == "clear"


@pytest.mark.parametrize("host_us", [8_000, 500])
def test_a_function_that_launches_nothing_is_told_apart(outcome, host_us):
    p = Program()
    for _ in p.steps(6):
        with p.frame("train.py(9): mask_tokens"):
            p.busy(host_us)
        for _ in range(KERNELS):
            with p.row("aten::add"):
                p.kernel("vectorized_elementwise_kernel", 3)
                p.busy(HOST_US - LAUNCH_US)
    mostly = host_us > KERNELS * HOST_US
    assert outcome("launch-bound", p.trace()).answer == ("clear" if mostly else "found")


def test_the_place_is_where_the_device_waits(outcome):
    p = Program()
    for _ in p.steps(6):
        with p.frame("model.py(5): forward"):
            for _ in range(KERNELS):
                with p.row("aten::mm"):
                    p.kernel("gemm", 8)
        with p.frame("ema.py(9): update"):
            for _ in range(KERNELS):
                with p.row("aten::lerp_"):
                    p.kernel("lerp", 2)
                    p.busy(HOST_US)
    (finding,) = outcome("launch-bound", p.trace()).findings
    assert finding.location.function == "update"


@pytest.mark.parametrize(("iterations", "named"), [(20, True), (8, False)])
def test_names_a_loop_where_the_device_waits(outcome, iterations, named):
    p = Program()
    for _ in p.steps(6):
        with p.frame("model.py(9): returns"):
            for _ in range(iterations):
                for name in ("aten::mul", "aten::exp", "aten::add"):
                    with p.row(name):
                        p.busy(HOST_US)
                        p.kernel("elementwise", 2)
        p.sync()
    (finding,) = outcome("launch-bound", p.trace()).findings
    text = f"most of them in a Python loop of {iterations} iterations"
    assert (text in finding.summary) == named
    assert finding.fix.startswith("One call for all iterations") == named
    assert finding.location.function == "returns"
