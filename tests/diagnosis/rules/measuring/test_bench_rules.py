"""Programs that time themselves, rightly and wrongly."""

import pytest

from builders import TraceBuilder
from pinchpoint.hardware.specs import find_spec
from pinchpoint.trace import HostKind
from program import Program

CLOCK = "<built-in function perf_counter>"
MEMORY_BYTES_PER_S = find_spec(TraceBuilder().devices[0].name).memory_bytes_per_s


def timing(pieces_us, *, syncs=True, clock=CLOCK, elements=1 << 20, dtype="float"):
    """One step that times launches of an elementwise kernel of each length."""
    p = Program()
    for _ in p.steps(4):
        for us in pieces_us:
            p.host(clock, 1)
            with p.row("aten::mul", shapes=[[elements], []], dtypes=[dtype, "Scalar"]):
                p.kernel("vectorized_elementwise_kernel", us)
            if syncs:
                p.sync()
            p.host(clock, 1)
            if not syncs:
                p.sync()
    return p.trace()


def test_a_stopwatch_that_stops_before_the_device(outcome, ranked):
    trace = timing([2_000] * 4, syncs=False)
    (finding,) = outcome("bench-no-sync", trace).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["the stopwatch says"] < 20_000
    assert evidence["device work after it stopped"] == pytest.approx(2e6, rel=0.01)
    assert finding.location.function == "step"
    assert "bench-no-sync" in ranked(trace)


def test_a_stopwatch_that_waits_is_right(outcome):
    assert outcome("bench-no-sync", timing([2_000] * 4)).answer == "clear"


def test_stopwatches_that_add_up_to_the_work_are_right(outcome):
    p = Program()
    for _ in p.steps(6):
        p.host(CLOCK, 1)
        p.sync()  # for the work of the step before
        with p.row("aten::mul"):
            p.kernel("work", 2_000)
        p.host(CLOCK, 1)
        with p.row("aten::mul"):
            p.kernel("work", 2_000)
        p.busy(20)
        p.host(CLOCK, 1)
    assert outcome("bench-no-sync", p.trace()).answer == "clear"


def test_in_one_recorded_step_the_piece_that_waits_counts_with_the_one_that_launches(outcome):
    p = Program()
    for _ in p.steps(2):  # the first one is partial: one is judged
        p.host(CLOCK, 1)
        with p.row("aten::mul"):
            p.kernel("copy", 1)
        p.sync()  # for the work of the step before
        p.host(CLOCK, 1)
        with p.row("aten::mul"):
            p.kernel("work", 5_000)
        p.busy(2_000)
        p.host(CLOCK, 1)
    assert outcome("bench-no-sync", p.trace()).answer == "clear"


@pytest.mark.parametrize("cause", ["bench-no-sync", "bench-no-warmup", "bench-hot-cache"])
def test_without_python_frames_a_measurement_cannot_be_seen(outcome, cause):
    p = Program()
    for number in range(4):
        with p.row(f"ProfilerStep#{number}", kind=HostKind.ANNOTATION):
            p.kernel("work", 100)
            p.sync()
    assert outcome(cause, p.trace()).answer == "not checked"


@pytest.mark.parametrize("cause", ["bench-no-sync", "bench-no-warmup", "bench-hot-cache"])
def test_frames_without_readings_of_a_clock_show_that_nothing_is_measured(outcome, cause):
    trace = timing([2_000] * 4, clock="<built-in function len>")
    assert outcome(cause, trace).answer == "clear"


def first_call(us):
    """Steps that are one measurement each: the first one judged has a first call of ``us``."""
    p = Program()
    for i in p.steps(4):
        p.host(CLOCK, 1)
        with p.frame("bench.py(9): once"):
            p.kernel("work", us if i == 1 else 100)
            p.sync()
        p.host(CLOCK, 1)
        p.host(CLOCK, 1)
        p.kernel("work", 100)
        p.sync()
        p.host(CLOCK, 1)
    return p.trace()


def test_a_first_call_that_is_counted(outcome):
    (finding,) = outcome("bench-no-warmup", first_call(5_000)).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["first"] == pytest.approx(5e6, rel=0.01)
    assert evidence["median of the others"] < 150_000
    assert finding.consequence == "the program's own timing is wrong"


def test_a_measurement_whose_beginning_is_not_recorded_is_not_judged(outcome):
    assert outcome("bench-no-warmup", first_call(100)).answer == "not checked"


ELEMENTS = 1 << 20
MOVED_BYTES = 2 * 4 * ELEMENTS  # one tensor in, one out
AT_MEMORY_US = MOVED_BYTES / MEMORY_BYTES_PER_S * 1e6


def test_a_kernel_faster_than_memory_runs_in_the_cache(outcome):
    trace = timing([AT_MEMORY_US / 2] * 8)
    (finding,) = outcome("bench-hot-cache", trace).findings
    assert finding.evidence[0].value == pytest.approx(2 * MEMORY_BYTES_PER_S, rel=0.001)


@pytest.mark.parametrize(
    "pieces", [[2 * AT_MEMORY_US] * 8, [AT_MEMORY_US / 2] * 2], ids=["from memory", "few"]
)
def test_other_kernels_may_be_fast(outcome, pieces):
    assert outcome("bench-hot-cache", timing(pieces)).answer == "clear"


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        ("signed char", 1),
        ("unsigned char", 1),
        ("bool", 1),
        ("c10::Float8_e4m3fn", 1),
        ("c10::Float8_e5m2", 1),
        ("c10::complex<float>", 8),
        ("c10::complex<double>", 16),
    ],
)
def test_numbers_of_every_size_are_counted(outcome, dtype, width):
    at_memory_us = AT_MEMORY_US * width / 4
    (finding,) = outcome("bench-hot-cache", timing([at_memory_us / 2] * 8, dtype=dtype)).findings
    assert finding.evidence[0].value == pytest.approx(2 * MEMORY_BYTES_PER_S, rel=0.01)
    assert outcome("bench-hot-cache", timing([at_memory_us * 2] * 8, dtype=dtype)).answer == "clear"


def test_numbers_of_unknown_size_are_not_judged(outcome):
    for dtype in ("c10::Posit16", ""):
        found = outcome("bench-hot-cache", timing([AT_MEMORY_US / 2] * 8, dtype=dtype))
        assert (found.answer, found.why) == (
            "not checked",
            "the bytes that aten::mul moves are not known",
        )
