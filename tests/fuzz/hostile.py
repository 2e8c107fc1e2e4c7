"""What a command may be given in place of a file, of every kind that is known to hurt.

Small files: what takes long or much in them is the fault of who reads them.
"""

import gzip
import io
import json
import os
import pickle
import random
import socket
import sqlite3
import tarfile
from collections.abc import Iterator
from pathlib import Path

from fuzz.checks import DATA
from fuzz.mutators import VALUES
from fuzz.samples import samples, tarred, trace, zipped

DEEP, MANY = 100_000, 20_000
LARGEST_BYTES = 60_000  # of a file of another format


def hostile(folder: Path) -> dict[str, str]:
    """Made in the folder: what to say on the command line, by what it is."""
    given = {}
    for name, raw in _contents():
        given[name] = str(_put(folder / "files" / _name(name), raw))
    for name, raw in _of_other_formats():
        given[f"format {name}"] = str(_put(folder / "formats" / name, raw))
        given[f"half of {name}"] = str(_put(folder / "halves" / name, raw[: len(raw) // 2]))
    given |= _names(folder / "names")
    given |= _places(folder / "places")
    return given | WORDS


# Words that are no file here.
WORDS = {
    "nothing": "",
    "missing": "/nowhere/at/all.json",
    "a zero byte": "a\0b.json",
    "too long": "x" * 5000,
    "long path": "/".join(["y" * 200] * 40),
    "no unicode": "\udcff\udcfe.json",
    "steering": "\x1b[2J\x1b]0;x\x07.json",
    "home": "~",
    "an option": "--no-such-option",
    "a dash": "-",
    "a wildcard": "*.json",
    "closed port": "http://127.0.0.1:9/trace.json",
    "no scheme": "gopher://x/y",
    "file scheme": "file:///etc/passwd",
    "empty scheme": "file://",
    "root": "/",
    "proc": "/proc",
    "own process": "/proc/self",
    "memory": "/proc/self/mem",
    "maps": "/proc/self/maps",
    "open files": "/proc/self/fd",
    "zeros": "/dev/zero",
    "noise": "/dev/urandom",
    "full": "/dev/full",
    "null": "/dev/null",
    "devices": "/dev",
    "input": "/dev/stdin",
    "terminal": "/dev/tty",
    "etc": "/etc",
}


def _contents() -> Iterator[tuple[str, bytes]]:
    noise = random.Random(0).randbytes(60_000)
    yield from (("empty", b""), ("a byte", b"{"), ("zeros.json", bytes(10**6)), ("noise", noise))
    yield from (("noise.csv", noise), ("noise.pickle", noise), ("noise.sqlite", noise))
    for at, value in enumerate(VALUES):
        yield f"value {at}.json", _json(value)
        yield f"events {at}.json", _json({"traceEvents": value, "schemaVersion": value})
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2}
    for key in (*event, "args"):
        events = [event | {key: value} for value in VALUES]
        yield f"wrong {key}.json", _json({"traceEvents": events})
    for what, begin, end in (
        ("lists", b"[", b"]"),
        ("objects", b'{"a":', b"}"),
        ("left", b"[", b""),
    ):
        yield f"deep {what}.json", begin * DEEP + b"1" * (what == "objects") + end * DEEP
    yield "deep inside.json", b'{"traceEvents":[{"args":' + b"[" * DEEP + b"]" * DEEP + b"}]}"
    yield "digits.json", b'{"traceEvents":[{"ph":"X","ts":' + b"9" * MANY + b"}]}"
    yield "long line.csv", b"a," * MANY + b"\n" + b"1," * MANY
    yield "many lines.csv", b"Name,Start\n" + b"a,1\n" * MANY
    yield "wide.txt", trace().encode("utf-16")
    yield "marked.json", b"\xef\xbb\xbf" + trace().encode()
    yield from _packed()
    yield from _pickles()
    yield from _databases()


def _packed() -> Iterator[tuple[str, bytes]]:
    sound = gzip.compress(trace().encode())
    yield "cut.json.gz", sound[: len(sound) // 2]
    yield "wrong sum.json.gz", sound[:-8] + bytes(8)
    yield "no packing.json.gz", trace().encode()
    yield "twice.json.gz", gzip.compress(sound)
    yield "bomb.json.gz", gzip.compress(b"[" + b" " * (1 << 28), 9)
    yield "bomb.zip", zipped({"t.json": " " * (1 << 27)})
    yield "outside.zip", zipped({"../../out.json": trace(), "/tmp/out.json": trace()})
    yield "odd names.zip", zipped({"a\nb.json": trace(), "\x1b[2J.json": trace(), "C:\\x": trace()})
    yield "in itself.zip", zipped({"a.zip": zipped({"b.json": trace()}).decode("latin-1")})
    yield "many.zip", zipped({f"{at}.json": "{}" for at in range(3000)})
    yield "cut.zip", zipped({"t.json": trace()})[:-20]
    yield "links.tar", _tar_of_odd_kinds()
    yield "cut.tar", tarred({"t.json": trace()})[:700]


def _tar_of_odd_kinds() -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name, kind in (("l", b"2"), ("h", b"1"), ("fifo", b"6"), ("dev", b"3"), ("../x", b"5")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    return held.getvalue()


class _Runs:
    """What a pickle could do where it is loaded as pickles are."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("pickle-ran",)


def _pickles() -> Iterator[tuple[str, bytes]]:
    yield "runs.pickle", pickle.dumps({"segments": [_Runs()], "device_traces": []})
    yield "deep.pickle", b"\x80\x04" + b"]" * DEEP + b"a" * (DEEP - 1) + b"."
    yield (
        "numbers.pickle",
        pickle.dumps({"segments": [{"address": 10**400}], "device_traces": [[]]}),
    )
    for at, value in enumerate(VALUES):
        held = {"segments": value, "device_traces": [[value, {"action": value, "addr": value}]]}
        yield f"snapshot {at}.pickle", pickle.dumps(held)
    yield "claims much.pickle", b"\x80\x04B\xff\xff\xff\x7fabc."


def _databases() -> Iterator[tuple[str, bytes]]:
    kernels = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL"
    for name, statements in {
        "no rows": ["CREATE TABLE t (a)"],
        "view": ["CREATE TABLE t (a)", "CREATE VIEW StringIds AS SELECT * FROM t"],
        "no columns": [f"{kernels} (x)", "CREATE TABLE StringIds (id, value)"],
        "texts": [
            f"{kernels} (start, end, deviceId, streamId, correlationId, demangledName)",
            f"INSERT INTO {kernels[13:]} VALUES ('a', x'00ff', 1e308, -1, NULL, "
            + str(2**63 - 1)
            + ")",
            "CREATE TABLE StringIds (id, value)",
            "INSERT INTO StringIds VALUES ('x', x'ff'), (1, 5)",
        ],
        "odd names": ['CREATE TABLE "a""b\n;--" ("c d" INT)', 'CREATE TABLE "rocpd_string" (id)'],
    }.items():
        connection = sqlite3.connect(":memory:")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        yield f"{name}.sqlite", connection.serialize()
        connection.close()


def _of_other_formats() -> Iterator[tuple[str, bytes]]:
    """Sound files: the smallest of each ending that is kept here, and those that are made."""
    smallest: dict[tuple[str, str], Path] = {}
    for path in sorted(p for p in DATA.rglob("*") if p.is_file()):
        key = path.parent.name, "".join(path.suffixes[-2:])
        if path.stat().st_size <= LARGEST_BYTES:
            smallest[key] = min(smallest.get(key, path), path, key=lambda p: p.stat().st_size)
    for path in smallest.values():
        yield f"{path.parent.name}-{path.name}", path.read_bytes()
    for name, sample in samples().items():
        if len(sample.files) == 1:
            yield f"{name}-{next(iter(sample.files))}", next(iter(sample.files.values()))
    documents = {"result": "bench.result/1", "report": "pinchpoint.report/1", "none": "x"}
    for name, schema in documents.items():
        yield f"{name}.json", _json({"schema": schema})


def _names(folder: Path) -> dict[str, str]:
    """Sound recordings under odd names."""
    names = (
        "a\nb.json",
        "\x1b[2J.json",
        "-x.json",
        "--html",
        "é😀.json",
        "%s%n{0}.json",
        "n" * 250,
    )
    names += ("a b;rm.json", "..json", " .json", "$(x).json", "a\u202eb.json", "no\udcffname.json")
    return {f"name {name!r}"[:60]: str(_put(folder / name, trace().encode())) for name in names}


def _places(folder: Path) -> dict[str, str]:
    """Links, pipes, and folders that are no runs, or nearly."""
    folder.mkdir()
    for name, target in {
        "to root": "/",
        "to proc": "/proc/self",
        "to itself": "to itself",
        "to nothing": "nothing",
        "to zeros": "/dev/zero",
    }.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
    (folder / "empty folder").mkdir()
    for name in ("a\nb.json", "rank0.json", "rank1.json"):
        _put(folder / "folder" / name, trace().encode())
    os.mkfifo(folder / "folder/pipe.json")
    (folder / "folder/loop").symlink_to(".")
    (folder / "folder/root").symlink_to("/")
    deep = folder.joinpath("deep", *["d"] * 200)
    _put(deep / "t.json", trace().encode())
    for at, value in enumerate(VALUES):
        _put(folder / f"run {at}/run.json", _json(value))
        _put(folder / f"run {at}/traces/t.json", trace().encode())
        inside = _json({"schema": "pinchpoint.run/1", "command": value, "status": value})
        _put(folder / f"run of {at}/run.json", inside)
        _put(folder / f"run of {at}/processes/rank0.json", _json({"rank": value, "pid": value}))
        _put(folder / f"run of {at}/env.json", _json({"gpu": value}))
    return {p.name: str(p) for p in sorted(folder.iterdir())}


def outputs(folder: Path) -> dict[str, str]:
    """What may be given as the name of an output; what stands there must be there afterwards."""
    folder.mkdir()
    recording = _put(folder / "recording.json", trace().encode())
    _put(folder / "letter.txt", b"not to be lost")
    (folder / "link").symlink_to(recording)
    (folder / "hard link").hardlink_to(recording)
    (folder / "to nothing").symlink_to("nothing/at/all")
    (folder / "to itself").symlink_to("to itself")
    (folder / "taken").mkdir()
    _put(folder / "taken/run.json", _json({"schema": "pinchpoint.run/1"}))
    places = {p.name: str(p) for p in sorted(folder.iterdir())}
    words = ("", "/", "/proc/x", "/proc/self/mem", "/dev/full", "a\0b", "x" * 300, "no/where/out")
    words += (".", "..", "/etc", f"{recording}/out", "/nowhere/../out", "~", "s3://a/b")
    return places | {f"output {word!r}"[:60]: word for word in words}


def _put(path: Path, raw: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def _name(what: str) -> str:
    return what.replace("/", "-")


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
