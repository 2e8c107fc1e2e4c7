from builders import TraceBuilder
from pinchpoint.analysis.time.stopwatches import stopwatches
from program import LAUNCH_US, START_US, Program

CLOCK = "<built-in function perf_counter>"


def measured(*, waits=False, launches=2, clock=CLOCK, caller=None):
    """Steps that each read a clock before and after launches of 1 ms, and then wait."""
    p = Program()

    def read():
        if caller:
            with p.frame(caller):
                p.host(clock, 1)
        else:
            p.host(clock, 1)

    for _ in p.steps(4):
        read()
        for _ in range(launches):
            p.kernel("work", 1_000)
        if waits:
            p.sync()
        read()
        p.sync()
    return p.trace()


def test_launches_between_readings_and_when_their_work_was_done():
    found = stopwatches(measured())
    assert found.name == CLOCK
    assert found.launches.tolist() == [2, 2, 2]
    assert not found.waits.any()
    begin_ns = (LAUNCH_US + START_US) * 1_000
    late = found.device_end_ns - found.start_ns
    assert ((late > 2_000_000) & (late < 2_000_000 + 2 * begin_ns)).all()
    assert (found.end_ns < found.device_end_ns).all()


def test_a_wait_before_the_second_reading():
    found = stopwatches(measured(waits=True))
    assert found.waits.all()
    assert (found.end_ns >= found.device_end_ns).all()


def test_no_launch_or_no_clock_is_no_stopwatch():
    assert stopwatches(measured(launches=0)) is None
    assert stopwatches(measured(clock="<built-in function len>")) is None
    assert stopwatches(TraceBuilder().trace(host_ops=None)) is None


def test_a_clock_that_a_library_reads_for_itself_is_not_the_programs():
    assert stopwatches(measured(caller="torch/profiler/profiler.py(1): _time")) is None


def test_two_readings_in_different_steps_are_no_pair():
    p = Program()
    for _ in p.steps(4):
        p.host(CLOCK, 1)
        p.kernel("work", 100)
    assert stopwatches(p.trace()) is None
