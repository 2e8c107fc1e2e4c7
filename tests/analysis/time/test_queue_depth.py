import pytest

from builders import TraceBuilder
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.time.queue_depth import latest_prompt_start_ns, queue
from pinchpoint.trace import ApiKind, DeviceKind


def test_a_host_that_runs_ahead_fills_the_queue():
    b = TraceBuilder()
    for i in range(5):
        b.launch(i * 10, 5, "k", 20 + i * 100, 100)
    found = queue(b.trace())
    assert found.depth.tolist() == [0, 1, 2, 3, 4]
    assert found.latency_ns.tolist() == [20, 110, 200, 290, 380]
    assert found.empty_ratio == pytest.approx(0.2)
    assert found.median_depth == 2
    assert found.median_lead_ns == 195


def test_a_late_host_finds_it_empty():
    b = TraceBuilder()
    for i in range(4):
        b.launch(i * 100, 5, "k", i * 100 + 10, 20)
    found = queue(b.trace())
    assert found.empty_ratio == 1
    assert found.median_lead_ns == 5


def test_a_graph_is_queued_by_one_call():
    b = TraceBuilder()
    call = b.api("cudaGraphLaunch", 0, 5, kind=ApiKind.GRAPH_LAUNCH)
    for i in range(3):
        b.add(
            "device_ops",
            name="node",
            kind=DeviceKind.KERNEL,
            start_ns=10 + i * 10,
            duration_ns=10,
            device=0,
            correlation=call["correlation"],
        )
    b.launch(20, 1, "k", 40, 10)
    found = queue(b.trace())
    assert found.depth.tolist() == [0, 2]


def test_a_start_before_its_call_is_clock_error_and_no_latency():
    b = TraceBuilder()
    b.launch(10, 5, "k", 8, 20)
    assert queue(b.trace()).latency_ns.tolist() == [0]


def test_without_links_there_is_no_queue():
    b = TraceBuilder()
    b.add("device_ops", name="k", kind=DeviceKind.KERNEL, start_ns=0, duration_ns=5, device=0)
    assert queue(b.trace()) is None
    assert queue(TraceBuilder().trace()) is None


@pytest.mark.parametrize(
    ("starts_after_ns", "latest_ns"),
    [
        pytest.param(2_000, 10_000, id="as on most devices"),
        pytest.param(15_000, 22_500, id="a device that starts late, always"),
        pytest.param(442_000, 10_000, id="so late that something else held it up"),
    ],
)
def test_how_late_a_prompt_start_may_be_is_what_the_recording_shows(starts_after_ns, latest_ns):
    b = TraceBuilder()
    for i in range(20):
        at = i * 1_000_000
        b.launch(at, 5_000, "k", at + 5_000 + starts_after_ns, 4_000)
    assert latest_prompt_start_ns(b.trace()) == latest_ns


def test_a_constant_start_latency_is_no_wait_for_other_work():
    b = TraceBuilder()
    b.step(0, 0, 20_000_000)
    for i in range(20):
        b.launch(i * 1_000_000, 5_000, "k", i * 1_000_000 + 20_000, 4_000)
    parts = breakdown(b.trace())
    assert parts.of_part("idle-dependency") == 0
    assert parts.of_part("idle-start-latency") == 20 * 15_000
