import gzip
import pickle

import numpy as np
import pytest

import pinchpoint as pp
from importers.memory_snapshot import snapshots
from pinchpoint.importers.memory_snapshot import dict_pattern, pickle_state, read
from pinchpoint.trace import AllocatorAction, BlockState, Frame


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", ["one.pickle", "one.pickle.gz"])
def test_all_protocols_plain_and_gzipped(tmp_path, protocol, name):
    trace = pp.load(snapshots.write(tmp_path / name, snapshots.small(), protocol))
    snapshot = trace.snapshot
    assert snapshot.complete
    assert snapshot.events["action"].tolist() == [4, 1, 1, 2, 3]
    assert snapshot.events["bytes"].tolist() == [2 << 20, 1000, 512, 512, 512]
    assert snapshot.events["address"][1] == snapshots.BASE
    assert snapshot.stacks[snapshot.events["stack"][1]] == (
        Frame("torch/nn/modules/linear.py", 134, "forward"),
        Frame("model.py", 12, "forward"),
    )
    assert snapshot.blocks["state"].tolist() == [BlockState.ALLOCATED, BlockState.INACTIVE]
    assert snapshot.segments["small"].tolist() == [True]
    assert [(m.name, m.begins) for m in snapshot.marks] == [
        ("ProfilerStep#0", True),
        ("ProfilerStep#0", False),
    ]
    assert trace.allocations["bytes"].tolist() == [1000, 512, -512]


@pytest.mark.parametrize("protocol", [2, 4])
def test_runs_of_events_give_what_single_events_give(tmp_path, monkeypatch, protocol):
    path = snapshots.write(
        tmp_path / "many.pickle", snapshots.many(10_000), protocol
    )  # more than a run holds
    found = [read(path).snapshot]
    monkeypatch.setattr(dict_pattern, "_runs", None)
    found.append(read(path).snapshot)
    monkeypatch.setattr(pickle_state, "MAX_LANES", 0)
    slow = read(path).snapshot
    assert len(slow.events) == 10_001
    assert found[0].events["address"].max() >= 1 << 63
    for fast in found:
        for column in slow.events.columns.keys() - {"stack"}:
            assert np.array_equal(fast.events[column], slow.events[column]), column
        assert _stacks(fast) == _stacks(slow)


def _stacks(snapshot):
    return [snapshot.stacks[i] for i in snapshot.events["stack"]]


@pytest.mark.parametrize(
    ("key", "value"), [("addr", -5), ("size", "many"), ("time_us", 1 << 70), ("frames", 7)]
)
def test_one_odd_value_among_many_events_is_refused_or_read_alike(
    tmp_path, monkeypatch, key, value
):
    document = snapshots.many(9_000)
    document["device_traces"][0][8_500][key] = value
    path = snapshots.write(tmp_path / "odd.pickle", document)

    def outcome():
        try:
            return read(path).snapshot.events[key].tolist()
        except pp.PinchpointError as error:
            return str(error)

    fast = outcome()
    monkeypatch.setattr(dict_pattern, "_runs", None)
    assert outcome() == fast


def test_a_file_of_torch_2_0_has_no_addresses_of_blocks_and_no_times(tmp_path):
    old = snapshots.small()
    for block in old["segments"][0]["blocks"]:
        del block["address"], block["frames"], block["requested_size"]
    history = {"addr": snapshots.BASE, "real_size": 1000, "frames": snapshots.FRAMES}
    old["segments"][0]["blocks"][0]["history"] = [history]
    for event in old["device_traces"][0]:
        for key in ("time_us", "compile_context", "user_metadata"):
            del event[key]
    snapshot = read(snapshots.write(tmp_path / "old.pickle", old)).snapshot
    assert snapshot.blocks["address"].tolist() == [snapshots.BASE, snapshots.BASE + 1024]
    assert snapshot.blocks.value("requested_bytes", 0) == 1000
    assert snapshot.blocks.value("requested_bytes", 1) is None
    assert snapshot.events.value("time_us", 0) is None


def test_what_an_oom_and_a_private_pool_add(tmp_path):
    new = snapshots.small()
    trace = new["device_traces"][0]
    failed = snapshots.event("oom", 0, 4096, pool_id=(0, 0))
    del failed["addr"]
    trace.append(failed | {"device_free": 77})
    trace.append(snapshots.event("alloc", 2**63 + 512, 99, pool_id=(0, 3), user_metadata="x"))
    new["host_traces"] = []
    trace_read = read(snapshots.write(tmp_path / "new.pickle", new))
    events = trace_read.snapshot.events
    assert events["action"][5] == AllocatorAction.OOM
    assert events.value("free_bytes", 5) == 77
    assert events.value("address", 5) is None
    assert trace_read.text(events, "pool", 6) == "0, 3"
    assert trace_read.text(events, "pool", 1) is None
    assert trace_read.text(events, "note", 6) == "x"
    assert events["address"][6] == 2**63 + 512
    assert trace_read.snapshot.unread_keys == ("host_traces",)


@pytest.mark.parametrize("compress", [False, True])
def test_every_truncation_gives_what_is_whole_or_one_clear_error(tmp_path, compress):
    data = pickle.dumps(snapshots.small(), 4)
    data = gzip.compress(data) if compress else data
    path = tmp_path / "cut.pickle"
    counts = []
    for size in range(2, len(data) - 1, 7):
        path.write_bytes(data[:size])
        try:
            snapshot = read(path).snapshot
        except pp.PinchpointError:
            continue
        assert not snapshot.complete
        counts.append(len(snapshot.events))
    assert counts == sorted(counts)
    assert not counts or counts[-1] == 5


def test_a_file_cut_inside_its_events_keeps_the_first_ones(tmp_path):
    data = pickle.dumps(snapshots.many(3000), 4)
    path = tmp_path / "cut.pickle"
    path.write_bytes(data[: len(data) // 2])
    trace = read(path)
    assert trace.source.truncated
    assert 1000 < len(trace.snapshot.events) < 2000
    assert set(trace.snapshot.events["device"].tolist()) == {0}


def test_another_pickle_is_named_as_such(tmp_path):
    path = snapshots.write(tmp_path / "x.pickle", {"weights": [1, 2]})
    with pytest.raises(pp.PinchpointError, match="not of a memory snapshot"):
        pp.load(path)
