"""Files that hold no trace, or try to do harm: one clear error with a next step, no hang."""

import gzip
import os

import pytest

from kineto_documents import SCANNERS, document, kernel, op, written
from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.kineto import read, read_arguments
from pinchpoint.importers.kineto.reading import lenient
from pinchpoint.importers.kineto.reading.document import MOST_MEMBERS

GOOD = document(op("a", 1, 2))


def refused(path):
    with pytest.raises(UnreadableFile) as caught:
        load(path)
    assert caught.value.hint
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "empty"),
        (b"hello", "text"),
        (bytes(range(256)) * 9, "binary"),
        (b"\x1f", "binary"),
        (gzip.compress(GOOD.encode(), mtime=0)[:2], "gzip"),
        (gzip.compress(GOOD.encode(), mtime=0)[:12], "cut off"),
        (gzip.compress(b"", mtime=0), "holds nothing"),
        (b'{"a": 1, "b": [1, 2]}', "its keys: a, b"),
        (b'{"schemaVersion": 1, "deviceProp', "cut off or broken"),
        (b'{"schemaVersion": 1, "traceEvents": {}}', "without a list of traceEvents"),
        (b"[]", "not of traceEvents"),
        (b'[{"name": "marks", "value": 1}]', "not of traceEvents"),
        (b'[{"ph": "X", "name": "a"}]', "without a single one"),
        (b"42", "numbers without names"),
        (b"<!DOCTYPE html><html></html>", "HTML"),
        (GOOD.encode("utf-16-le"), "UTF-16"),
    ],
)
def test_files_that_hold_no_trace(tmp_path, raw, words):
    path = tmp_path / "trace.json"
    path.write_bytes(raw)
    assert words in refused(path)


def test_paths_that_are_no_files(tmp_path):
    assert "folder" in refused(tmp_path)
    assert "no such file" in refused(tmp_path / "absent.json")
    assert "no path" in refused("a\0b")
    os.mkfifo(tmp_path / "pipe.json")
    assert "pipe" in refused(tmp_path / "pipe.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    path = written(tmp_path, GOOD)
    path.chmod(0)
    assert "permission denied" in refused(path)


@pytest.mark.parametrize("scanner", SCANNERS)
@pytest.mark.parametrize(
    ("begin", "repeated"),
    [
        ("", " "),
        ('{"a": "', "x"),
        ("{", ","),
        ("[", " "),
        ("[", '{"pid": 12345678, "tid": 12345678},'),  # no event: nothing says when
        ('[{"name": "', "x"),
        ('[{"args": {"a": ', "["),
    ],
)
def test_endless_text_without_events(tmp_path, monkeypatch, scanner, begin, repeated):
    monkeypatch.setattr("pinchpoint.importers.kineto.reading.scan.EMPTY_TEXT_BYTES", 3 << 19)
    monkeypatch.setattr("pinchpoint.importers.kineto.reading.document.FRAME_BYTES", 1 << 19)
    monkeypatch.setattr("pinchpoint.importers.kineto.reading.document.EVENT_BYTES", 1 << 19)
    monkeypatch.setattr("pinchpoint.importers.kineto.reading.scan.EVENT_BYTES", 1 << 19)
    path = written(tmp_path, begin + repeated * (10_000_000 // len(repeated)), "trace.json.gz")
    with pytest.raises(HostileFile):
        read(path, scanner=scanner)


def test_a_crowd_of_members_is_refused_before_it_is_read(tmp_path):
    crowd = ",".join(f'"k{i}":0' for i in range(MOST_MEMBERS + 1))
    before = written(tmp_path, f"{{{crowd},{GOOD.strip()[1:]}", "before.json.gz")
    after = written(tmp_path, f"{GOOD.strip()[:-1]},{crowd}}}", "after.json.gz")
    for path in (before, after):
        with pytest.raises(HostileFile, match="more than 10,000 members"):
            read(path)


@pytest.mark.parametrize("scanner", SCANNERS)
@pytest.mark.parametrize(
    "inside",
    [
        pytest.param('"Input Dims": ' + "[" * 100_000 + '"a"' + "]" * 100_000, id="deep"),
        pytest.param('"Concrete Inputs": "' + "x" * 1_000_000 + '"', id="long"),
        pytest.param('"External id": ' + "1" * 1_000_000, id="many digits"),
        pytest.param(
            '"External id": 1e999999999, "Sequence number": -9223372036854775808', id="huge"
        ),
    ],
)
def test_extreme_values(tmp_path, scanner, inside):
    text = GOOD.replace('"args": {}', '"args": {' + inside + "}")
    trace = read(written(tmp_path, text), scanner=scanner)
    assert trace.host_ops.value("external_id", 0) is None


def test_numbers_that_do_not_fit_are_unknown(tmp_path):
    huge = {"registers_per_thread": 2**40, "shared_memory": -1, "device": 2**50, "stream": 2**70}
    ops = load(written(tmp_path, document(kernel("k", 1, 2, 3, **huge)))).device_ops
    assert ops.value("registers", 0) is None
    assert ops.value("shared_bytes", 0) is None
    assert ops.value("stream", 0) == 7  # that of the thread
    assert ops.value("device", 0) == 0


@pytest.mark.parametrize("scanner", SCANNERS)
def test_an_event_that_never_ends_costs_only_itself(tmp_path, monkeypatch, scanner):
    monkeypatch.setattr("pinchpoint.importers.kineto.reading.document.EVENT_BYTES", 1 << 16)
    monkeypatch.setattr("pinchpoint.importers.kineto.reading.scan.EVENT_BYTES", 1 << 16)
    odd = '{"ph": "X", "name": "broken", "args": {"a": ["x", y" ]}},\n'  # an odd number of quotes
    good = '{"ph": "X", "cat": "cpu_op", "name": "good", "pid": 1, "tid": 1, "ts": 1, "dur": 2},\n'
    text = "[" + good * 9 + odd + good * 3000 + "{}]"
    trace = read(written(tmp_path, text), scanner=scanner)
    assert len(trace.host_ops) == 3009


def test_arguments_on_demand(tmp_path):
    events = [op(f"op {i}", i + 1, 0.5, number=i, text="é") for i in range(50)]
    path = written(tmp_path, document({"ph": "M", "name": "x"}, *events), "t.json.gz")
    trace = load(path)
    chosen = trace.host_ops["event"][[7, 3, 7]]
    for scanner in SCANNERS:
        found = read_arguments(trace, chosen, scanner)
        assert [arguments["number"] for arguments in found] == [7, 3, 7]
        assert found[0]["text"] == "é"
    assert read_arguments(trace, []) == []
    assert read_arguments(trace, [0, 9999]) == [{}, {}]
    path.unlink()
    with pytest.raises(UnreadableFile):
        read_arguments(trace, [1])


def test_progress_is_told(tmp_path):
    seen = []
    path = written(tmp_path, GOOD, "t.json.gz")
    load(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


@pytest.mark.parametrize(
    "member",
    [
        pytest.param(b'"x":' + b"[" * 600 + b"]" * 600, id="deep"),
        pytest.param(b'"x":[' + b"[]," * (1 << 10) + b"[]]", id="wide"),
    ],
)
@pytest.mark.parametrize("place", ["before", "after"])
def test_a_member_without_bounds_is_refused(tmp_path, monkeypatch, member, place):
    monkeypatch.setattr(lenient, "MOST_BRACKETS", 1 << 10)
    events = GOOD[1:-1].encode()
    parts = [member, events] if place == "before" else [events, member]
    path = tmp_path / "t.json"
    path.write_bytes(b"{" + b",".join(parts) + b"}")
    with pytest.raises(HostileFile, match="nests deeper, or holds more"):
        load(path)
