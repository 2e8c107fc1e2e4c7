"""Loops small enough to replay in one's head; times in microseconds times 1000."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.replay import (
    AddHostTime,
    DropDeviceOps,
    DropSyncs,
    GraphLaunches,
    MoveToOwnStream,
    RemoveHostTime,
    RemoveRecordingCost,
    ScaleDeviceOps,
    ScaleHostSpans,
)
from pinchpoint.analysis.replay.apply import apply
from pinchpoint.analysis.replay.predict import (
    corrected_range_ns,
    corrected_step_ns,
    what_if,
)
from pinchpoint.analysis.replay.simulate import PASSES, _Run, all_passes, simulate
from pinchpoint.analysis.replay.window import clean_window, replayable
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, MemoryKind, RunFacts

US = 1_000
STEPS = 6


def step_ns(trace, *changes):
    base = replayable(trace)
    return base.mean_ns(apply(trace, base.graph, changes)) / US


def turns(host_us=100, device_us=100, sync=True):
    """Each step launches a kernel, waits for it, then works on the host alone."""
    b = TraceBuilder()
    period = (host_us + device_us + 10) if sync else max(host_us + 10, device_us)
    for i in range(STEPS):
        at = i * period * US
        b.step(i, at, (host_us + 10 + (device_us if sync else 0)) * US)
        b.launch(at, 5 * US, "work", at + 10 * US, device_us * US)
        if sync:
            b.api(
                "cudaStreamSynchronize",
                at + 6 * US,
                (device_us + 4) * US,
                kind=ApiKind.SYNC_STREAM,
            )
        b.op("prepare", at + (10 + (device_us if sync else 0)) * US, host_us * US)
    return b.trace()


def test_replay_without_changes_gives_the_recording():
    base = replayable(turns())
    assert base.identity_error == 0
    assert base.recorded_ns == 210 * US


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize(("host_us", "device_us"), [(100, 100), (20, 300), (300, 20)])
def test_passes_that_are_not_run_would_repeat_the_last(host_us, device_us, sync):
    trace = turns(host_us, device_us, sync)
    base = replayable(trace)
    for graph in (base.graph, apply(trace, base.graph, [ScaleDeviceOps(base.graph.op_rows, 0.5)])):
        run = _Run(graph, 0)
        for number in range(PASSES):
            run.one_pass(number)
        periods = np.diff([run.before, *run.completions])
        assert simulate(graph).durations_ns == tuple(periods.tolist())


@pytest.mark.parametrize(
    ("launches", "lanes"), [pytest.param(20, 1, id="in turn"), pytest.param(1, 2, id="at a time")]
)
def test_micro_steps_take_many_turns_and_still_share_a_lane(launches, lanes):
    """Ten micro-steps a step: forward on one thread, backward on another, so many launches each."""
    b, at = TraceBuilder(), 0
    other = b.thread("autograd")
    for i in range(3):
        begin = at
        for _ in range(10):
            for thread in (0, other):
                for _ in range(launches):
                    b.launch(at, 5 * US, "work", at + 10 * US, 2 * US, thread=thread)
                    at += 10 * US
        b.step(i, begin, at - begin)
    assert len(replayable(b.trace()).graph.lane_threads) == lanes


def test_without_the_sync_the_longer_side_remains():
    trace = turns(host_us=100, device_us=150)
    syncs = np.flatnonzero(trace.api_calls["kind"] == ApiKind.SYNC_STREAM)
    assert step_ns(trace, DropSyncs(syncs)) == pytest.approx(150, abs=6)
    trace = turns(host_us=300, device_us=150)
    assert step_ns(trace, DropSyncs(syncs)) == pytest.approx(310, abs=6)


def test_what_was_queued_before_the_window_hides_no_host_that_is_slower_than_its_device():
    """A kernel of 20 ms before steps of 100 µs on the host: while it runs, the host gets ahead by
    more than three windows."""
    b = TraceBuilder()
    b.launch(0, 5 * US, "long", 10 * US, 20_000 * US)
    at = 20 * US
    for i in range(STEPS):
        b.step(i, at, 100 * US)
        b.launch(at, 5 * US, "work", (20_010 + 80 * i) * US, 80 * US)
        b.op("prepare", at + 10 * US, 90 * US)
        at += 100 * US
    trace = b.trace()
    work = np.flatnonzero(trace.device_ops["duration_ns"] == 80 * US)
    assert replayable(trace).identity_error == pytest.approx(0, abs=0.01)
    assert step_ns(trace) == pytest.approx(100, abs=1)
    assert step_ns(trace, ScaleDeviceOps(work, 0.01)) == pytest.approx(100, abs=1)


def test_host_work_that_is_taken_away_shortens_a_host_bound_step():
    trace = turns()
    rows = np.flatnonzero(trace.host_ops["duration_ns"] == 100 * US)
    assert step_ns(trace, ScaleHostSpans(rows, 0.5)) == pytest.approx(160)
    assert step_ns(trace, ScaleHostSpans(rows, 0.0)) == pytest.approx(110)


def test_what_a_fix_takes_of_the_host_comes_on_top():
    trace = turns()
    launches = np.flatnonzero(trace.api_calls["kind"] == ApiKind.LAUNCH)
    assert step_ns(trace, AddHostTime(launches, 30 * US)) == pytest.approx(240)


def test_faster_device_work_helps_as_long_as_someone_waits_for_it():
    trace = turns()
    everything = np.arange(len(trace.device_ops))
    assert step_ns(trace, ScaleDeviceOps(everything, 0.5)) == pytest.approx(160)
    hidden = turns(host_us=200, device_us=50, sync=False)
    assert step_ns(hidden, ScaleDeviceOps(everything, 0.5)) == pytest.approx(210)


def small_kernels(count=10):
    """A host that needs 20 µs for each kernel of 2 µs."""
    b = TraceBuilder()
    for i in range(STEPS):
        at = i * count * 20 * US
        b.step(i, at, count * 20 * US)
        for k in range(count):
            begin = at + k * 20 * US
            b.op("aten::add", begin + 5 * US, 14 * US)
            b.launch(begin + 12 * US, 5 * US, "add", begin + 18 * US, 2 * US)
    return b.trace()


def test_one_graph_launch_leaves_the_device_time():
    trace = small_kernels()
    after = step_ns(trace, GraphLaunches(np.arange(len(trace.device_ops))))
    assert 20 <= after < 45  # ten kernels of 2 µs, their bubbles, one launch and the loop's rest


def test_who_waits_learns_of_a_graph_when_all_of_it_ended():
    """The host asks for one graph ahead, and waits each time for the one before.

    Each wait ends 20 µs after that graph, as the first part of the next one has just ended.
    """
    b, part = TraceBuilder(), 20 * US
    for i in range(STEPS + 1):
        at, runs = i * 100 * US, 20 * US + i * 100 * US
        b.step(i, at, 100 * US)
        call = b.api("cudaGraphLaunch", at + US, 5 * US, kind=ApiKind.GRAPH_LAUNCH)
        for place in range(5):
            b.add(
                "device_ops", name="copy" if place < 3 else "work", kind=DeviceKind.KERNEL,
                device=0, stream=7, start_ns=runs + place * part, duration_ns=part,
                correlation=call["correlation"],
            )  # fmt: skip
        b.api("read", at + 10 * US, 30 * US, kind=ApiKind.SYNC_EVENT)
    trace = b.trace()
    copies = np.flatnonzero(trace.device_ops["name"] == trace.names.index("copy"))
    graph = replayable(trace).graph
    waits = graph.waits_for[graph.waits_for >= 0]
    assert (graph.tail_ns[graph.waits_for >= 0] == 20 * US).all()
    assert set(waits % 5) == {4}  # the last of its graph
    assert step_ns(trace) == pytest.approx(100, abs=1)
    assert step_ns(trace, DropDeviceOps(copies)) == pytest.approx(75, abs=1)  # what the host takes


def test_a_part_of_a_graph_makes_place_for_the_next_launch():
    """The host is a graph ahead; each launch ends 2 µs after two parts of five have ended."""
    b, part = TraceBuilder(), 200 * US
    for i in range(STEPS + 1):
        at, runs = i * 1000 * US, 200 * US + (i + 1) * 1000 * US
        b.step(i, at, 1000 * US)
        call = b.api("cudaGraphLaunch", at + US, 601 * US, kind=ApiKind.GRAPH_LAUNCH)
        for place in range(5):
            b.add(
                "device_ops", name="copy" if place < 3 else "work", kind=DeviceKind.KERNEL,
                device=0, stream=7, start_ns=runs + place * part, duration_ns=part,
                correlation=call["correlation"],
            )  # fmt: skip
    trace = b.trace()
    copies = np.flatnonzero(trace.device_ops["name"] == trace.names.index("copy"))
    graph = replayable(trace).graph
    waits = graph.waits_for[graph.waits_for >= 0]
    assert set(waits % 5) == {1}
    assert (graph.tail_ns[graph.waits_for >= 0] == 2 * US).all()
    assert step_ns(trace, DropDeviceOps(copies)) < 500  # what is left takes the device 400


def test_a_graph_ends_no_waits_for_a_place_on_the_device():
    b = TraceBuilder()
    for i in range(STEPS):
        at = i * 1000 * US
        b.step(i, at, 200 * US)
        b.launch(at, 5 * US, "theirs", at + 20 * US, 700 * US, stream=8)
        for k in range(10):  # all issued early, and nine of them start in the midst of that one
            begins = at + (480 + k * 50 if k else 30) * US
            b.launch(at + (8 + k * 16) * US, 5 * US, "ours", begins, 50 * US)
    trace = b.trace()
    ours = np.flatnonzero(trace.device_ops["stream"] == 7)
    assert step_ns(trace, GraphLaunches(ours)) == pytest.approx(1000, rel=0.05)


def test_what_was_queued_before_the_recording_is_no_slow_launch():
    b = TraceBuilder()
    for i in range(40):
        b.add("device_ops", name="earlier", start_ns=i * 10 * US, duration_ns=10 * US,
              kind=DeviceKind.KERNEL, device=0, stream=7)  # fmt: skip
    for i in range(40):
        b.launch(i * 8 * US, 5 * US, "later", (400 + i * 10) * US, 10 * US)
    b.api("cudaDeviceSynchronize", 320 * US, 482 * US, kind=ApiKind.SYNC_DEVICE)
    b.launch(810 * US, 5 * US, "alone", 820 * US, 10 * US)
    trace = b.trace()
    launched = np.flatnonzero(trace.device_ops.known("api_call"))
    prediction = what_if(trace, (GraphLaunches(launched),))
    assert prediction.saving_ns < 0.05 * prediction.base_ns


@pytest.mark.parametrize("kernel_us", [150, 40])  # each launch waits as long, or 5 µs less
def test_launches_into_a_full_queue_wait_for_the_device_and_get_faster_with_it(kernel_us):
    b = TraceBuilder()
    ahead, per_step, took = 1000, 50, kernel_us * US
    at = 0
    for step in range(60):
        begin = at
        for i in range(step * per_step, (step + 1) * per_step):
            released = 10 * US + (i - ahead + 1) * took
            end = max(at + 5 * US, released)
            b.launch(at, end - at, "work", 10 * US + i * took, took)
            at = end + US
        b.step(step, begin, at - begin)
    trace = b.trace()
    rows = np.arange(len(trace.device_ops))
    base = replayable(trace)
    assert base.recorded_ns == pytest.approx(per_step * took, rel=0.02)
    assert step_ns(trace, ScaleDeviceOps(rows, 0.5)) == pytest.approx(
        per_step * kernel_us / 2, rel=0.1
    )


def test_a_collective_waits_for_what_it_sends_also_where_the_one_before_it_took_longer():
    """Three parts of a backward pass of 1 ms, each followed by a collective of 3 ms."""
    b, at, computed, sent = TraceBuilder(), 0, 0, 0
    for step in range(STEPS):
        begin, computed = at, sent
        for _ in range(3):
            b.launch(at, 4 * US, "work", computed + 2 * US, 1_000 * US)
            computed += 1_002 * US
            sent = max(sent, computed + 3 * US) + 2 * US
            b.launch(at + 5 * US, 4 * US, "nccl", sent, 3_000 * US, stream=17,
                     kind=DeviceKind.COLLECTIVE)  # fmt: skip
            sent += 3_000 * US
            at += 10 * US
        b.step(step, begin, at - begin)
    trace = b.trace()
    sends = np.flatnonzero(trace.device_ops["kind"] == DeviceKind.COLLECTIVE)
    assert replayable(trace).identity_error == pytest.approx(0, abs=0.001)
    # All but the last hide behind what follows them.
    assert step_ns(trace, ScaleDeviceOps(sends, 0.1)) == pytest.approx(3 * 1_000 + 300, rel=0.02)


def test_what_comes_behind_a_dropped_copy_still_needs_the_collective_that_the_copy_waited_for():
    """1 ms of work, a collective of 3 ms, a copy of what it brought, and the work that reads it."""
    b, at, free = TraceBuilder(), 0, 0
    copies = []
    for step in range(STEPS):
        begin = at
        b.launch(at, 4 * US, "work", free + 2 * US, 1_000 * US)
        brought = free + 1_005 * US + 3_000 * US
        b.launch(at + 5 * US, 4 * US, "nccl", brought - 3_000 * US, 3_000 * US, stream=17,
                 kind=DeviceKind.COLLECTIVE)  # fmt: skip
        copies.append(brought + 2 * US)
        b.launch(at + 10 * US, 4 * US, "copy", copies[-1], 50 * US)
        b.launch(at + 15 * US, 4 * US, "work", copies[-1] + 52 * US, 1_000 * US)
        free = copies[-1] + 1_052 * US
        at += 20 * US
        b.step(step, begin, at - begin)
    trace = b.trace()
    rows = np.flatnonzero(np.isin(trace.device_ops["start_ns"], copies))
    assert replayable(trace).identity_error == pytest.approx(0, abs=0.001)
    assert step_ns(trace, DropDeviceOps(rows)) == pytest.approx(5_000, rel=0.01)


@pytest.mark.parametrize("late", [True, False], ids=["before it asked", "after it asked"])
def test_a_launch_whose_thread_lost_its_core_waits_for_nothing(late):
    """The host is 100 µs ahead of kernels of 40 µs when a launch of 4 µs takes 4 ms."""
    b, at, free = TraceBuilder(), 0, 0
    for step in range(STEPS):
        begin = at
        for k in range(20):
            took = 4_000 * US if k == 10 else 4 * US
            asked = at + took - 2 * US if late else at + 2 * US
            begins = max(free, asked + 4 * US - 2 * US)
            b.launch(at, took, "work", begins, 40 * US)
            free, at = begins + 40 * US, at + took + 2 * US
        b.step(step, begin, at - begin)
    trace = b.trace()
    calls = trace.api_calls
    stood = np.flatnonzero(calls["duration_ns"] > 100 * US)
    spans = RemoveHostTime(calls["start_ns"][stood] + 4 * US, calls.end_ns[stood])
    assert replayable(trace).identity_error == pytest.approx(0, abs=0.001)
    assert step_ns(trace, spans) == pytest.approx(20 * 40, rel=0.1)


def test_dropped_operations_take_their_launches_with_them():
    trace = small_kernels()
    half = np.arange(0, len(trace.device_ops), 2)
    assert step_ns(trace, DropDeviceOps(half)) == pytest.approx(100, abs=20)


def test_a_copy_on_its_own_stream_hides_behind_compute():
    b = TraceBuilder()
    for i in range(STEPS):
        at = i * 150 * US
        b.step(i, i * 20 * US, 15 * US)
        b.copy(
            i * 20 * US,
            5 * US,
            "Memcpy HtoD (Pinned -> Device)",
            at + 20 * US,
            50 * US,
            size=1 << 20,
            source=MemoryKind.PINNED,
            target=MemoryKind.DEVICE,
        )
        b.launch(i * 20 * US + 6 * US, 5 * US, "gemm", at + 70 * US, 100 * US)
    trace = b.trace()
    copies = np.flatnonzero(trace.device_ops["bytes"] == 1 << 20)
    assert step_ns(trace) == pytest.approx(150)
    assert step_ns(trace, MoveToOwnStream(copies)) == pytest.approx(100)


def starved(wait_us=200):
    """A loader that has a batch every 300 µs; the rest of the step takes 100 µs on the host."""
    b = TraceBuilder()
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    for i in range(STEPS):
        at = i * 10 * 300 * US
        b.step(i, at, 3_000 * US)
        b.annotation(name, at, 10 * wait_us * US)
        b.op("aten::mm", at + 10 * wait_us * US + 10 * US, 900 * US)
        b.launch(at + 10 * wait_us * US + 500 * US, 5 * US, "mm", at + 2_510 * US, 40 * US)
    return b.trace()


def test_a_recording_without_host_ranges_has_none_to_take_away():
    trace = turns()
    none = np.empty(0, np.int64)
    graph = replayable(trace).graph
    assert apply(replace(trace, host_ops=None), graph, [ScaleHostSpans(none, 0.0)]) is graph


def test_workers_keep_their_own_pace_when_the_host_gets_faster():
    trace = starved()
    work = np.flatnonzero(trace.host_ops["duration_ns"] == 900 * US)
    assert step_ns(trace, ScaleHostSpans(work, 0.1)) == pytest.approx(3_000, rel=0.01)


def test_where_batches_are_ready_nothing_waits_for_the_pace_of_workers():
    trace = starved(wait_us=8)
    work = np.flatnonzero(trace.host_ops["duration_ns"] == 900 * US)
    usual = step_ns(trace)
    assert step_ns(trace, ScaleHostSpans(work, 0.0)) == pytest.approx(usual - 900, rel=0.01)


def test_a_faster_loader_releases_the_step():
    trace = starved()
    loads = np.flatnonzero(trace.host_ops["duration_ns"] == 2_000 * US)
    assert step_ns(trace, ScaleHostSpans(loads, 0.0)) == pytest.approx(1_000, rel=0.02)


def test_a_trace_without_calls_cannot_be_replayed():
    b = TraceBuilder()
    b.op("aten::mm", 0, 10)
    assert replayable(b.trace()) is None


@pytest.mark.parametrize("factor", [0.0, 0.125, 0.5])
def test_a_scaled_span_keeps_its_share_of_what_recording_left(factor):
    trace = turns(host_us=100, device_us=5)
    rows = np.flatnonzero(trace.host_ops["kind"] == HostKind.OPERATOR)
    clean = step_ns(trace, RemoveRecordingCost())
    gone = step_ns(trace, RemoveRecordingCost(), ScaleHostSpans(rows, 0.0))
    left = step_ns(trace, RemoveRecordingCost(), ScaleHostSpans(rows, factor)) - gone
    assert left == pytest.approx(factor * (clean - gone), abs=2)


def test_what_is_first_in_the_window_waited_for_the_step_before():
    """A device that is always behind: a faster one is faster in the first replayed step too."""
    b = TraceBuilder()
    for i in range(STEPS):
        b.step(i, i * 20 * US, 20 * US)
        b.launch(i * 20 * US, 5 * US, "work", (10 + i * 1_000) * US, 1_000 * US)
    trace = b.trace()
    faster = what_if(trace, (ScaleDeviceOps(np.arange(STEPS), 0.1),))
    assert faster.step_ns == pytest.approx(100 * US, rel=0.05)


def test_a_stream_may_still_work_on_the_step_before_when_others_begin_the_window():
    """One stream is always five steps behind, the other one runs what it gets at once."""
    b = TraceBuilder()
    for i in range(STEPS):
        at = i * 100 * US
        b.step(i, at, 100 * US)
        b.launch(at, 5 * US, "small", at + 10 * US, 5 * US, stream=8)
        b.launch(at + 20 * US, 5 * US, "behind", (500 + i * 100) * US, 100 * US)
    first = next(all_passes(replayable(b.trace()).graph, before_ns=0))
    done = first.completions_ns
    assert {later - earlier for earlier, later in pairwise(done)} == {100 * US}
    assert done[-1] == (500 + 100 * STEPS) * US


def test_recording_takes_no_part_of_the_work_of_the_device():
    """Work whose launches are not in the file keeps the device busy for 80 of 100 µs."""
    b = TraceBuilder()
    for i in range(STEPS):
        at = i * 100 * US
        b.step(i, at, 100 * US)
        for k in range(9):
            b.op("aten::add", at + k * 10 * US, 9 * US)
            b.launch(at + (k * 10 + 5) * US, 1 * US, "add", at + (k * 10 + 7) * US, US)
        b.add("device_ops", name="unknown", start_ns=at + 10 * US, duration_ns=80 * US,
              kind=DeviceKind.KERNEL, device=0, stream=8)  # fmt: skip
    trace = b.trace()
    assert clean_window(trace).mean_ns < 60 * US
    assert 79 * US <= corrected_step_ns(trace) <= 100 * US


def test_steps_measured_without_the_profiler_count_by_their_median():
    timed = (200 * US,) * 19 + (9_000 * US,)
    trace = replace(turns(), run=RunFacts(unprofiled_step_ns=timed))
    assert corrected_step_ns(trace) == 200 * US


def test_long_steps_that_were_not_recorded_are_no_part_of_the_recorded_ones():
    timed = ((100 * US,) * 9 + (9_000 * US,)) * 4  # 990 on average, and 200 were recorded
    trace = replace(turns(), run=RunFacts(unprofiled_step_ns=timed))
    assert corrected_step_ns(trace) == 100 * US


@pytest.mark.parametrize(
    ("timed_us", "step_us"),
    [
        ((5, 5, 5, 387) * 8, 101),  # three launches, then a wait for all four
        ((5, 5, 5, 505) * 8, 110),  # no longer than recorded
        ((5, 5, 5, 85) * 8, 25),  # less than the device works: the mean, as of other bursts
    ],
)
def test_launches_without_a_wait_are_no_steps(timed_us, step_us):
    trace = turns(host_us=100, sync=False)  # 110 µs, of which the device works 100
    run = RunFacts(unprofiled_step_ns=tuple(us * US for us in timed_us))
    assert corrected_step_ns(replace(trace, run=run)) == pytest.approx(step_us * US, abs=US)


def test_no_step_takes_less_than_the_devices_work_in_it():
    """A host that fills a queue ends steps before the device does."""
    timed = (20 * US,) * 3 + (150 * US,) * 9  # of which the device works 100 µs
    trace = replace(turns(), run=RunFacts(unprofiled_step_ns=timed))
    low, high = corrected_range_ns(trace)
    assert low == 100 * US
    assert high == 150 * US


def test_steps_in_bursts_cost_their_mean():
    timed = ((100 * US,) * 7 + (900 * US,)) * 4
    trace = replace(turns(), run=RunFacts(unprofiled_step_ns=timed))
    assert corrected_step_ns(trace) == 200 * US
    low, high = corrected_range_ns(trace)
    assert low == pytest.approx(200 * US - 2 * 264.6 * US / 32**0.5, rel=0.001)
    assert high == pytest.approx(200 * US + 2 * 264.6 * US / 32**0.5, rel=0.001)


def test_nothing_is_surely_won_of_what_longer_steps_hold_beyond_recorded_ones():
    """What makes those longer was not recorded, and may be none of what a fix takes away."""
    trace = replace(turns(), run=RunFacts(unprofiled_step_ns=(606 * US,) * 20))
    prepare = np.flatnonzero(trace.host_ops["kind"] == HostKind.OPERATOR)
    after = what_if(trace, (ScaleHostSpans(prepare, 0.1),))
    # Without recording's own time, 202 µs were recorded, and 92 of them are this row's. Of the 404
    # beyond, 4 are the device's, which works 100, and the rest the host's, of which 19.2 are left.
    assert after.step_ns == pytest.approx((104 + 19.2 * (102 + 400) / 102) * US, rel=0.01)
    assert after.range_ns[1] == pytest.approx((606 - 82.8) * US, rel=0.001)


def test_where_steps_are_shorter_than_recorded_ones_the_rest_may_still_take_as_long():
    """What made recorded ones longer may be the very part that a fix takes away."""
    trace = replace(turns(), run=RunFacts(unprofiled_step_ns=(121 * US,) * 20))
    prepare = np.flatnonzero(trace.host_ops["kind"] == HostKind.OPERATOR)
    change = (ScaleHostSpans(prepare, 0.1),)
    after, recorded = what_if(trace, change), what_if(turns(), change)
    assert after.step_ns < recorded.step_ns
    assert after.range_ns[1] >= min(recorded.step_ns, 121 * US)
