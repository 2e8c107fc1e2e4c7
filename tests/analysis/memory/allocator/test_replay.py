import dataclasses

import numpy as np
import pytest

from analysis.memory import recordings
from analysis.memory.programs import MAIN, MIB, START, Program, forward, user
from pinchpoint.analysis.memory.allocator.block_sizes import (
    LARGE_REMAINDER_BYTES,
    MIN_BLOCK_BYTES,
    MOST_SEARCHED,
    Blocks,
    Rules,
    rules,
)
from pinchpoint.analysis.memory.allocator.lives import CODES, plain_paired
from pinchpoint.analysis.memory.allocator.replay import replay
from pinchpoint.analysis.memory.history import histories

CURVES = ("requested", "allocated", "active", "reserved")


@pytest.mark.parametrize("name", recordings.NAMES)
def test_the_four_peaks_are_those_of_the_allocator(name):
    found = replay(recordings.recording(name), 0)
    for curve in CURVES:
        assert found.peak(curve).bytes == recordings.truth(name)[f"{curve}_peak"], curve
        assert found.peak(curve).at_most == found.peak(curve).bytes
    assert found.doubts == ()


@pytest.mark.parametrize("name", recordings.NAMES)
def test_the_curves_pass_through_every_moment_that_was_measured(name):
    found = replay(recordings.recording(name), 0)
    for label, when, *_, allocated, requested, reserved in recordings.truth(name)["marks"]:
        event = int(np.searchsorted(found.time_us, when, "right")) - 1
        if event >= 0:
            now = found.allocated[event], found.requested[event], found.reserved[event]
            assert now == (allocated, requested, reserved), label


@pytest.mark.parametrize("expandable", [False, True])
def test_blocks_are_compiled_and_plain_alike(expandable):
    compiled = pytest.importorskip("pinchpoint.analysis.memory.allocator._blocks")
    chance, chosen = np.random.default_rng(1), Rules(expandable=expandable)
    limits = (MIN_BLOCK_BYTES, LARGE_REMAINDER_BYTES, MOST_SEARCHED)
    both = (Blocks(chosen), compiled.Blocks(chosen, limits))
    for number in range(10):
        start, kind = START + number * 40 * MIB, number // 2 * 2 + number % 2
        for blocks in both:
            blocks.join(start + 512, start + 40 * MIB, kind)
            blocks.use(start, start + 512, kind)
    for _ in range(40):
        address = (START + chance.integers(0, 800, 5_000) * MIB // 2).astype(np.uint64)
        born = chance.integers(0, 2, 5_000).astype(np.uint8)
        least = chance.integers(1, 5_000, 5_000) * 512
        plain, native = (blocks.run(born, address, least).tolist() for blocks in both)
        assert native == plain
        lost = START + int(chance.integers(0, 800)) * MIB // 2
        for blocks in both:
            blocks.lose(lost, lost + MIB // 4, True)
    assert both[0].unplaced == both[1].unplaced > 0
    assert max(plain) > LARGE_REMAINDER_BYTES


def test_blocks_at_more_addresses_than_the_first_table_holds_are_compiled_and_plain_alike():
    """Segments at the high addresses of a driver: what is counted are spots, not addresses."""
    compiled = pytest.importorskip("pinchpoint.analysis.memory.allocator._blocks")
    limits, segments = (MIN_BLOCK_BYTES, LARGE_REMAINDER_BYTES, MOST_SEARCHED), 5_000
    both = (Blocks(Rules()), compiled.Blocks(Rules(), limits))
    starts = 0x70E7_8E00_0000 + np.arange(segments, dtype=np.uint64) * np.uint64(4 * MIB)
    for blocks in both:
        for number, start in enumerate(starts.tolist()):
            blocks.join(start, start + 2 * MIB, 2 * number)
    born, least = np.ones(segments, np.uint8), np.full(segments, 512)
    plain, native = (blocks.run(born, starts, least).tolist() for blocks in both)
    assert native == plain == [512] * segments
    assert both[0].unplaced == both[1].unplaced == 0


@pytest.mark.parametrize("name", ["healthy_train", "oom", "expandable_train", "cudagraph_pool"])
def test_a_recording_that_begins_late_gives_the_same_from_there_on(name):
    trace = recordings.recording(name)
    whole = replay(trace, 0)
    for cut in np.linspace(1, len(whole) - 2, 9).astype(int).tolist():
        events = trace.snapshot.events.take(np.arange(cut, len(whole)))
        late = dataclasses.replace(
            trace, snapshot=dataclasses.replace(trace.snapshot, events=events)
        )
        found = replay(late, 0)
        for curve in CURVES:
            low = getattr(found, curve)
            high = low + (found.slack_curve if curve in ("allocated", "active") else 0)
            exact = getattr(whole, curve)[cut:]
            assert np.all((low <= exact) & (exact <= high)), (cut, curve)


def test_a_late_start_and_a_ring_are_told_apart():
    assert recordings.history("ring_truncated").replay.beginning == "ring"
    assert recordings.history("healthy_train").replay.beginning == "whole"
    p = Program()
    kept = p.alloc(5 * MIB, MAIN)
    p.alloc(MIB, MAIN)
    trace = p.trace()
    snapshot = trace.snapshot
    late = snapshot.events.take(np.arange(2, len(snapshot.events)))
    ring = dataclasses.replace(trace, snapshot=dataclasses.replace(snapshot, events=late))
    assert replay(ring, 0).beginning == "ring"
    p.live[kept] = (p.live[kept][0], None)  # allocated before stacks were recorded
    trace = p.trace()
    start = dataclasses.replace(trace, snapshot=dataclasses.replace(trace.snapshot, events=late))
    found = replay(start, 0)
    assert found.beginning == "late start"
    assert found.base[0] == 5 * MIB
    assert found.peak("requested").bytes == 6 * MIB


def test_a_remainder_that_is_too_small_to_split_belongs_to_the_block():
    p = Program(segment_bytes=20 * MIB)
    first = p.alloc(10 * MIB, MAIN)
    p.alloc(9 * MIB + 512, MAIN)  # leaves less than 1 MiB
    p.drop(first, MAIN)
    found = replay(p.trace(), 0)
    assert found.allocated.tolist() == [0, 10 * MIB, 20 * MIB, 10 * MIB, 10 * MIB]
    assert found.requested.tolist()[-1] == 9 * MIB + 512
    assert found.peak("reserved").bytes == 20 * MIB


def test_a_pending_free_is_active_but_not_allocated():
    p = Program()
    block = p.alloc(4 * MIB, MAIN)
    p.drop(block, MAIN, later=True)
    p.alloc(2 * MIB, MAIN)
    p.complete(block, MAIN)
    found = replay(p.trace(), 0)
    assert (found.allocated // MIB).tolist() == [0, 4, 0, 2, 2]
    assert (found.active // MIB).tolist() == [0, 4, 4, 6, 2]


def test_a_dump_without_history_knows_only_its_own_moment():
    p = Program()
    p.alloc(3 * MIB, MAIN)
    trace = p.trace()
    none = trace.snapshot.events.take(np.zeros(0, np.intp))
    trace = dataclasses.replace(trace, snapshot=dataclasses.replace(trace.snapshot, events=none))
    found = replay(trace, 0)
    assert found.beginning == "unknown"
    assert found.peak("requested").bytes == 3 * MIB
    assert "only the moment of the dump" in found.doubts[0]


def test_events_that_were_skipped_are_noticed():
    p = Program()
    p.alloc(2 * MIB, forward(12))
    p.events.append(dict(p.events[-1], time_us=9))  # the free between the two is missing
    assert "contradict" in replay(p.trace(), 0).doubts[0]


@pytest.mark.parametrize(
    ("requested", "block"),
    [(1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)],
)
def test_requests_are_rounded_to_512_bytes(requested, block):
    assert Rules().rounded(requested) == block


def test_power_of_two_divisions():
    setting = rules({"roundup_power2_divisions": {"1": 0, "256": 4, "512": 8}})
    assert setting.rounded(300 * MIB) == 320 * MIB
    assert setting.rounded(257 * MIB) == 320 * MIB
    assert setting.rounded(256 * MIB) == 256 * MIB
    assert setting.rounded(513 * MIB) == 576 * MIB
    assert setting.rounded(3 * MIB) == 3 * MIB


def test_blocks_know_their_events_and_stacks():
    p = Program()
    one = p.alloc(2 * MIB, forward(12))
    p.alloc(MIB * 3, user(7))
    p.drop(one, user(8))
    history = histories(p.trace())[0]
    blocks = history.blocks
    assert blocks.address.tolist() == [START, START + 2 * MIB]
    assert blocks.birth.tolist() == [1, 2]
    assert blocks.freed.tolist() == [3, 5]
    assert blocks.death.tolist() == [4, 5]
    assert history.signs.location(history.stack_of(0)).line == 12
    assert history.signs.operation(history.stack_of(0)) == "nn.linear"


def test_events_are_paired_compiled_and_plain_alike():
    compiled = pytest.importorskip("pinchpoint.analysis.memory.allocator._blocks")
    random = np.random.default_rng(5)
    for events in (0, 1, 20_000):  # also doubled, out of order, of actions that are no block's
        action = random.integers(0, 6, events).astype(np.uint8)
        address = random.integers(1, 9_000, events).astype(np.uint64) << np.uint64(9)
        columns, both = [], (plain_paired, compiled.paired)
        for paired in both:
            *rows, doubled = paired(action, address, CODES)
            order = np.lexsort((*reversed(rows), np.max(rows[1:4], axis=0)))
            columns.append([doubled, *(values[order].tolist() for values in rows)])
        assert columns[0] == columns[1]
