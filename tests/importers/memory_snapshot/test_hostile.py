"""Pickles that want to run code, or to exhaust memory or time."""

import gzip
import os
import pickle
import pickletools
import tracemalloc

import pytest

from importers.memory_snapshot import snapshots
from pinchpoint.errors import HostileFile
from pinchpoint.importers import memory_snapshot
from pinchpoint.importers.memory_snapshot import pickle_state, plain_pickle, read

MIB = 1 << 20


class Runs:
    def __reduce__(self):
        return os.system, ("touch hacked",)


class Builds:
    def __init__(self):
        self.x = 1


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("content", [Runs(), Builds(), {"segments": Runs()}, {"a": b"bytes"}])
def test_code_is_never_loaded(tmp_path, monkeypatch, content, protocol):
    monkeypatch.chdir(tmp_path)
    path = snapshots.write(tmp_path / "x.pickle", content, protocol)
    with pytest.raises(HostileFile, match="refused") as caught:
        read(path)
    assert str(path) in caught.value.message
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"cos\nsystem\n(S'x'\ntR.", id="GLOBAL of protocol 0"),
        pytest.param(b"\x80\x04\x8c\x02os\x8c\x06system\x93.", id="STACK_GLOBAL"),
        pytest.param(b"\x80\x02}(X\x01\x00\x00\x00ai__main__\nx\n.", id="INST"),
        pytest.param(b"\x80\x04}b.", id="BUILD"),
        pytest.param(b"\x80\x02\x82\x01.", id="EXT1"),
        pytest.param(b"\x80\x02Q.", id="BINPERSID"),
        pytest.param(b"\x80\x04" + b"](" * 1000, id="deep nesting"),
        pytest.param(b"\x80\x04\x8b\xff\xff\xff\x7f", id="LONG4 of 2 GiB"),
        pytest.param(b"\x80\x04\x8d" + b"\xff" * 8, id="text of 2**64 bytes"),
        pytest.param(b"\x80\x04]h\x07a.", id="reference to nothing"),
        pytest.param(b"\x80\x04}K\x01K\x02K\x03u.", id="SETITEMS without MARK"),
        pytest.param(b"\x80\x04K\x01K\x02s.", id="SETITEM on a number"),
        pytest.param(b"\x80\x04]](K\x01e.", id="left over"),
        pytest.param(b"\x80\x04}\x94(K\x01h\x00u.", id="a dictionary inside itself"),
        pytest.param(b"\x80\x02}(}K\x01", id="a dictionary as a key, cut off"),
    ],
)
def test_malformed_and_hostile_opcodes(tmp_path, body):
    path = tmp_path / "x.pickle"
    path.write_bytes(body + b"\x00" * 8)
    with pytest.raises((HostileFile, memory_snapshot.UnreadableFile)):
        read(path)


@pytest.mark.parametrize(
    "repeated",
    [
        pytest.param(b"]", id="lists"),
        pytest.param(b"]\x94", id="named lists"),
        pytest.param(b"}", id="dictionaries"),
        pytest.param(b"\x94", id="names"),
        pytest.param(b"K\x01", id="numbers"),
        pytest.param(b")", id="tuples"),
        pytest.param(b"h\x00\x86\x94", id="a tuple of tuples"),
    ],
)
def test_endless_values_stop_early(tmp_path, monkeypatch, repeated):
    for limit in ("MAX_STACK", "MAX_KEPT", "CHUNK_BYTES"):
        monkeypatch.setattr(pickle_state, limit, 50_000)
    path = tmp_path / "bomb.pickle.gz"
    path.write_bytes(gzip.compress(b"\x80\x04]\x94" + repeated * (2 * MIB // len(repeated)), 1))
    tracemalloc.start()
    with pytest.raises(HostileFile):
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 * MIB


def test_opcodes_that_do_nothing_stop(tmp_path, monkeypatch):
    monkeypatch.setattr(pickle_state, "MAX_IDLE_BYTES", 4 * MIB)
    path = tmp_path / "idle.pickle"
    path.write_bytes(b"\x80\x04" * (4 * MIB))
    with pytest.raises(HostileFile, match="without holding a recording"):
        read(path)


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_snapshot, "EXPANSION_FROM_BYTES", MIB)
    path = tmp_path / "bomb.pickle.gz"
    path.write_bytes(gzip.compress(b"\x80\x04" + b"\x80\x04" * (4 * MIB)))
    with pytest.raises(HostileFile, match="unpacks"):
        read(path)


def test_too_many_events_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_snapshot.collect, "MAX_EVENTS", 1000)
    path = snapshots.write(tmp_path / "x.pickle", snapshots.many(3000))
    with pytest.raises(HostileFile, match="more events"):
        read(path)


def test_wrong_types_end_in_one_error(tmp_path):
    broken = snapshots.small()
    for key, value in (("size", "many"), ("addr", -5), ("time_us", 2**70), ("size", None)):
        broken["device_traces"][0][1] = snapshots.event("alloc", 0, 1) | {key: value}
        with pytest.raises(HostileFile):
            read(snapshots.write(tmp_path / "x.pickle", broken))


def test_only_opcodes_of_plain_data_are_known():
    allowed = {ord(o.code) for o in pickletools.opcodes} & set(plain_pickle._HANDLERS)
    forbidden = {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX"}
    assert not {o.name for o in pickletools.opcodes if ord(o.code) in allowed} & forbidden
    assert pickle.MARK[0] in allowed


def test_a_number_among_frames_is_no_frame(tmp_path):
    """It was the position of a frame that does not exist."""
    damaged = snapshots.small()
    event = next(e for e in damaged["device_traces"][0] if e["frames"])
    event["frames"] = [*event["frames"], 10**6]
    stacks = read(snapshots.write(tmp_path / "x.pickle", damaged)).snapshot.stacks
    assert stacks.frame.max() < len(stacks.frames)
