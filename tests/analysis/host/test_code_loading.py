from builders import TraceBuilder
from pinchpoint.analysis.host.launches import loading_calls
from pinchpoint.analysis.time.accounting import breakdown

MS = 1_000_000


def test_a_long_first_launch_of_a_kernel_loads_its_code():
    b = TraceBuilder()
    b.launch(0, 20 * MS, "add", 20 * MS, 1000)
    b.launch(21 * MS, 20 * MS, "add", 41 * MS, 1000)  # not its first
    b.launch(42 * MS, MS, "mul", 43 * MS, 1000)  # no longer than a host that is descheduled
    assert loading_calls(b.trace()).tolist() == [True, False, False]


def test_idle_time_in_such_a_launch_is_loading():
    b = TraceBuilder()
    b.step(0, 0, 50 * MS)
    b.launch(0, 1000, "mul", 1000, 1000)
    b.launch(MS, 20 * MS, "add", 21 * MS, 1000)
    parts = breakdown(b.trace())
    assert parts.of_part("idle-code-load") == 20 * MS
