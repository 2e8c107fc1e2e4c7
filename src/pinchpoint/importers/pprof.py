"""What JAX holds on its devices, as ``jax.profiler.save_device_memory_profile`` writes it.

A profile of pprof (``profile.proto``): each sample is a stack of Python with how many buffers it
made that are still held, and their bytes; labels say whether they are buffers or compiled programs,
and on which device. It is one moment, so no step and no peak can be asked of it. Profiles of pprof
by other programs (Go, gperftools) know the host alone.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pinchpoint.errors import HostileFile, UnreadableFile
from pinchpoint.importers.assembly.facts import MOST_DEVICES
from pinchpoint.importers.files.memory import TABLE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.files.strangers import RECORD
from pinchpoint.importers.files.wire import INTEGER, MalformedMessage, messages, number_at, parts
from pinchpoint.importers.health import health_table
from pinchpoint.importers.program_logs._figures import said_table
from pinchpoint.regex import regex
from pinchpoint.trace import Names, Source, SummaryTable, Trace

FORMAT = "JAX memory profile"
FILES = (".prof .pb.gz", "jax.profiler.save_device_memory_profile")
READS: tuple[str, ...] = ("sums",)
NOT_READ = "profiles of pprof that know the host alone"

# Numbers of fields, as profile.proto of pprof has them.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6  # of Profile
_TYPE, _UNIT = 1, 2  # of ValueType
_LOCATIONS, _VALUES, _LABEL = 1, 2, 3  # of Sample
_KEY, _TEXT = 1, 2  # of Label
_ID, _LINE, _LINE_FUNCTION, _LINE_NUMBER = 1, 4, 1, 2  # of Location, and of its Line
_NAME, _FILENAME = 2, 4  # of Function
# The first sample type: two numbers of texts, one byte each in every file seen.
_BEGINS = regex(rb"\x0a[\x02\x04]\x08.(?:\x10.)?(?:\x0a[\x02\x04]\x08.|[\x12\x1a])", 16)
_OF_JAX = ("space", "bytes")
_LIBRARY = regex(r"/(?:site|dist)-packages/|/lib/python3|^<|^$")
_MIB = 1024.0**2  # bytes
_SIGN = 1 << 63  # of a number of 64 bits: minus one is a size that is not known
_MOST_ROWS = 200  # places; more nobody reads
# Of a stack, from the innermost on, in which the line of the program is looked for: Python itself
# stops at 1,000 unless asked, and a file of one endless stack took 26 times its size.
_MOST_FRAMES = 10_000
_MOST_LINES = 4_000  # that make buffers: programs have some hundred; further ones count as one
_OTHER_LINES = ("other lines", "")


class _Texts:
    """The texts of a profile, decoded when they are asked for; IndexError beyond the last."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._begin, self._end = array("Q", [0]), array("Q", [0])  # the first text is empty
        for begin, end in messages(data, _STRING):
            self._begin.append(begin)
            self._end.append(end)

    def __getitem__(self, at: int) -> str:
        return self._data[self._begin[at] : self._end[at]].decode("utf-8", "replace")

    def __contains__(self, text: str) -> bool:
        said = text.encode()
        places = zip(self._begin, self._end, strict=True)
        return any(self._data[begin:end] == said for begin, end in places)


class _ById:
    """Pairs of numbers by their id; of one that comes twice the later pair."""

    def __init__(self, rows: Iterable[tuple[int, int, int]]) -> None:
        self._columns = tuple(array("Q") for _ in range(3))
        for row in rows:
            for column, value in zip(self._columns, row, strict=True):
                column.append(value)
        ids = np.frombuffer(self._columns[0], np.uint64)
        if (ids[1:] <= ids[:-1]).any():
            order = np.argsort(ids, kind="stable")
            order = order[np.append(ids[order][1:] != ids[order][:-1], True)]
            self._columns = tuple(
                array("Q", np.frombuffer(column, np.uint64)[order].tobytes())
                for column in self._columns
            )

    def get(self, number: int) -> tuple[int, int] | None:
        """The pair of an id."""
        ids, first, second = self._columns
        at = bisect_left(ids, number)
        return (first[at], second[at]) if at < len(ids) and ids[at] == number else None


class _Places:
    """Function, file and line of each location: of what is inlined there the innermost."""

    def __init__(self, data: bytes, texts: _Texts) -> None:
        self._texts = texts
        self._functions = _ById(
            (one.get(_ID, 0), one.get(_NAME, 0), one.get(_FILENAME, 0))
            for one in (_numbers(data, a, b) for a, b in messages(data, _FUNCTION))
        )
        self._lines = _ById(_line_of_location(data, a, b) for a, b in messages(data, _LOCATION))

    def get(self, location: int) -> tuple[str, str, int] | None:
        """None where the profile has no such location."""
        line = self._lines.get(location)
        if line is None:
            return None
        named = self._functions.get(line[0])
        name, file = ("", "") if named is None else map(self._texts.__getitem__, named)
        return name, file, line[1]


def _line_of_location(data: bytes, begin: int, end: int) -> tuple[int, int, int]:
    """Its id, the id of its function, and the line."""
    fields = parts(data, begin, end)
    number = next((v for n, v, kind in fields if n == _ID and kind == INTEGER), 0)
    line = next((_numbers(data, v, e) for n, v, e in fields if n == _LINE and e != INTEGER), {})
    return number, line.get(_LINE_FUNCTION, 0), line.get(_LINE_NUMBER, 0)


class _Held(NamedTuple):
    """One sample."""

    stack: tuple[int, ...]  # locations, the innermost first
    number: int
    size: int
    kind: str
    device: str


class _Sums(NamedTuple):
    """Of buffers, by device and by (place, function); and how many compiled programs."""

    device_bytes: Counter[str]
    device_buffers: Counter[str]
    line_bytes: Counter[tuple[str, str]]
    line_buffers: Counter[tuple[str, str]]
    programs: int


def claims(path: Path, head: bytes) -> bool:
    """The types of the samples come first."""
    return _BEGINS.match(head) is not None


def read(path: Path) -> Trace:
    """Bytes by device and by the line that made them; UnreadableFile for other profiles."""
    with unpacked(path) as plain:
        must_fit(path, plain.stat().st_size, TABLE_TIMES)
        data = plain.read_bytes()
    try:
        texts = _Texts(data)
        types = [
            (texts[kind.get(_TYPE, 0)], texts[kind.get(_UNIT, 0)])
            for kind in (_numbers(data, a, b) for a, b in messages(data, _SAMPLE_TYPE))
        ]
        if _OF_JAX not in types or "kind" not in texts:
            said = ", ".join(f"{name} ({unit})" for name, unit in types)
            raise UnreadableFile(
                f"{path}: a profile of pprof with {said}, which knows the host alone", hint=RECORD
            )
        held = _sums(path, _samples(data, texts, types.index(_OF_JAX)), _Places(data, texts))
        tables = _by_device(held) + _by_line(held)
    except (MalformedMessage, IndexError):
        raise UnreadableFile(
            f"{path}: a profile of pprof that is cut off or damaged",
            hint="write it again: jax.profiler.save_device_memory_profile(PATH)",
        ) from None
    names = Names()
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, recorder="JAX"),
        summaries=tables,
        health=health_table([], names),
        names=names.freeze(),
    )


def _numbers(data: bytes, at: int, end: int) -> dict[int, int]:
    return {number: value for number, value, kind in parts(data, at, end) if kind == INTEGER}


def _packed(data: bytes, at: int, end: int) -> Iterator[int]:
    while at < end:
        value, at = number_at(data, at)
        yield value - 2 * _SIGN if value >= _SIGN else value


def _samples(data: bytes, texts: _Texts, size_at: int) -> Iterator[_Held]:
    for begin, end in messages(data, _SAMPLE):
        stack: list[int] = []
        values: list[int] = []
        labels: dict[str, str] = {}
        for number, at, until in parts(data, begin, end):
            if number in (_LOCATIONS, _VALUES):
                into = stack if number == _LOCATIONS else values
                room = max(_MOST_FRAMES - len(into), 0)
                into.extend(islice([at] if until == INTEGER else _packed(data, at, until), room))
            elif number == _LABEL and until != INTEGER:
                label = _numbers(data, at, until)
                labels[texts[label.get(_KEY, 0)]] = texts[label.get(_TEXT, 0)]
        size, count = values[size_at], values[1 - size_at] if len(values) == len(_OF_JAX) else 1
        yield _Held(tuple(stack), count, max(size, 0), labels.get("kind", ""),
                    labels.get("device", ""))  # fmt: skip


def _sums(path: Path, held: Iterator[_Held], places: _Places) -> _Sums:
    """One sample after the other: memory does not grow with them.

    The innermost line that is of no library made a buffer, as far as the stack tells.
    """
    sums, programs = _Sums(Counter(), Counter(), Counter(), Counter(), 0), 0
    for one in held:
        if one.kind == "buffer":
            line = _line_of(one.stack, places)
            if line not in sums.line_bytes and len(sums.line_bytes) >= _MOST_LINES:
                line = _OTHER_LINES
            sums.device_bytes[one.device] += one.size
            sums.device_buffers[one.device] += one.number
            sums.line_bytes[line] += one.size
            sums.line_buffers[line] += one.number
            if len(sums.device_bytes) > MOST_DEVICES:
                raise HostileFile(
                    f"{path}: buffers of more than {MOST_DEVICES:,} devices",
                    hint="write it again: jax.profiler.save_device_memory_profile(PATH)",
                )
        programs += one.number if one.kind == "executable" else 0
    return sums._replace(programs=programs)


def _by_device(held: _Sums) -> tuple[SummaryTable, ...]:
    sizes, counts = held.device_bytes, held.device_buffers
    rows = tuple(
        (device or "not said", f"{size / _MIB:,.1f}", f"{counts[device]:,}")
        for device, size in sizes.most_common(_MOST_ROWS)
    )
    table = SummaryTable(("device", "buffers (MiB)", "buffers"), rows, "held when it was written")
    said = [
        ("buffers of all devices", f"{sum(sizes.values()) / _MIB:,.1f} MiB in {counts.total():,}"),
        ("compiled programs", f"{held.programs:,}"),
        ("what of it was the peak", "not said: it is one moment"),
    ]
    return ((table,) if rows else ()) + said_table("of this moment", said)


def _by_line(held: _Sums) -> tuple[SummaryTable, ...]:
    sizes, counts = held.line_bytes, held.line_buffers
    whole = sum(sizes.values())
    rows = tuple(
        (
            place,
            f"{size / _MIB:,.1f}",
            f"{100 * size / whole:.1f}",
            f"{counts[place, name]:,}",
            name,
        )
        for (place, name), size in sizes.most_common(_MOST_ROWS)
        if size
    )
    columns = ("made at", "MiB", "%", "buffers", "in")
    return (SummaryTable(columns, rows, "buffers by the line that made them"),) if rows else ()


def _line_of(at: tuple[int, ...], places: _Places) -> tuple[str, str]:
    stack = (found for one in at if (found := places.get(one)) is not None)
    first = next(stack, ("", "", 0))
    own = (one for one in chain((first,), stack) if not _LIBRARY.search(one[1]))
    name, file, number = next(own, first)
    file = file.replace("\\", "/").rpartition("/")[2]
    return (f"{file}:{number}" if file else "no stack", name)


__all__ = ["FILES", "FORMAT", "NOT_READ", "READS", "claims", "read"]
