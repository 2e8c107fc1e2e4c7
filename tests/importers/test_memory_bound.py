"""Files that cannot fit into memory are refused before anything is allocated for them."""

import gzip
import json

import pytest

from fuzz.samples import samples
from pinchpoint.cli import main
from pinchpoint.errors import HostileFile
from pinchpoint.importers import load
from pinchpoint.importers.files import memory as _memory


@pytest.mark.parametrize(
    "name",
    [
        *("perfetto", "rocprofv3", "rocprofv3 csv", "ascend table"),
        *("memory timeline", "execution trace"),
    ],
)
def test_what_needs_more_than_there_is_says_so(name, tmp_path, monkeypatch, capsys):
    sample = samples()[name]
    for place, raw in sample.files.items():
        (tmp_path / place).write_bytes(raw)
    words = [sample.commands[0], *(str(tmp_path / word) for word in sample.given)]
    for left, code in ((1 << 40, 0), (100, 2)):
        monkeypatch.setattr(_memory, "_limits", lambda left=left: iter([left]))
        assert main(words) == code
        assert ("not enough memory" in capsys.readouterr().err) == (code == 2)


def test_the_smallest_limit_counts(monkeypatch):
    monkeypatch.setattr(_memory.resource, "getrlimit", lambda _: (1 << 60, 1 << 60))
    assert min(_memory._limits()) < 1 << 60  # what the machine has
    monkeypatch.setattr(_memory.resource, "getrlimit", lambda _: (0, 0))
    assert min(_memory._limits()) <= 0


def test_nesting_without_end_is_refused(tmp_path, capsys):
    for name, start in (
        ("r.json", b'{"rocprofiler-sdk-tool": '),
        ("m.raw.json", b"[[1,2,3,4],"),
    ):
        (tmp_path / name).write_bytes(start + b"[" * 1_000_000)
        assert main(["diagnose", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err.startswith("error: ")


def test_a_trace_that_unpacks_to_more_than_any_does_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pinchpoint.importers.kineto.reading.text.ALWAYS_ALLOWED_BYTES", 1 << 16)
    event = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":5,"dur":1}'
    plain = b'{"traceEvents":[' + b",".join([event] * 100_000) + b"]}"
    path = tmp_path / "same.json.gz"
    path.write_bytes(gzip.compress(plain))
    with pytest.raises(HostileFile, match="unpacks to more than"):
        load(path)


@pytest.mark.parametrize("lane", ["tid", "pid"])
def test_more_threads_or_devices_than_any_job_has_are_refused(lane, tmp_path, monkeypatch):
    monkeypatch.setattr("pinchpoint.importers.assembly.facts._MOST_THREADS", 9)
    monkeypatch.setattr("pinchpoint.importers.assembly.facts.MOST_DEVICES", 9)
    event = {"ph": "X", "cat": "cpu_op" if lane == "tid" else "kernel", "name": "a", "dur": 1}
    for count in (9, 10):
        events = [event | {"pid": 1, "tid": 1, "ts": n, lane: n} for n in range(count)]
        events = [e | {"args": {"device": e["pid"], "stream": 7}} for e in events]
        (path := tmp_path / f"{count}.json").write_text(json.dumps({"traceEvents": events}))
    load(tmp_path / "9.json")
    with pytest.raises(HostileFile, match=r"more than 9 (threads|devices)"):
        load(path)
