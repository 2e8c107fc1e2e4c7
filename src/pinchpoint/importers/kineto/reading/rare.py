"""Events that are few: names of threads, spans of the recording, counter ranges."""

from dataclasses import field
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Raw

from pinchpoint.frozen import dataclass
from pinchpoint.importers.kineto.reading.document import value_of
from pinchpoint.importers.kineto.reading.fields import ARGUMENTS, NULL, WINDOW_END, Form
from pinchpoint.importers.kineto.reading.lenient import event_at, number, phase, value_text
from pinchpoint.trace import Names, Table, table


@dataclass
class Rare:
    """What the rare events say; times as in the file."""

    thread_labels: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    process_names: dict[str, str] = field(default_factory=dict)
    process_labels: dict[str, str] = field(default_factory=dict)
    window_end_ns: int | None = None
    recording_ns: tuple[int, int] | None = None  # the profiler's own span: start, end
    ranges: list[tuple[int, str, str, dict[str, Any]]] = field(default_factory=list)


def read_rare(raw: list[tuple[int, bytes]]) -> Rare:
    """Sort the rare events."""
    rare = Rare()
    event_of = lru_cache(_REPEATED)(_event_of)
    for _, text in raw:
        _take(rare, event_of(text))
    return rare


# Some recorders name their processes and threads again with every span: 310,000 times, in 24
# different texts, in a public trace of an MTIA device. More threads than this are not repeated.
_REPEATED = 4096


class _Event(NamedTuple):
    """What a rare event says; its arguments are not to be changed."""

    phase: int
    name: str
    category: bytes
    process: str
    thread: str
    start: int
    duration: int
    arguments: Any


class _Strict(msgspec.Struct, gc=False):
    """The members of an event whose text is strict JSON, as they are written."""

    ph: Raw = Raw()
    name: Raw = Raw()
    cat: Raw = Raw()
    pid: Raw = Raw()
    tid: Raw = Raw()
    ts: Raw = Raw()
    dur: Raw = Raw()
    args: Raw = Raw(b"{}")


_STRICT = msgspec.json.Decoder(_Strict)


def _event_of(text: bytes) -> _Event:
    phase_, name, category, process, thread, start, duration, arguments = _members(text)
    return _Event(
        phase(phase_),
        value_text(name[1:-1]),
        category,
        token_text(process),
        token_text(thread),
        number(start, Form.NANOSECONDS),
        number(duration, Form.NANOSECONDS),
        value_of(arguments),
    )


def _members(text: bytes) -> tuple[bytes, ...]:
    """Members in the order of ``_Strict``, the same ones whichever way they are read."""
    if b"\\" not in text:  # keys are compared as they are written, msgspec compares them decoded
        try:
            event = _STRICT.decode(text)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            pass
        else:
            arguments = bytes(event.args)
            if arguments.startswith(b"{"):  # else an earlier one may have been an object
                members = (event.ph, event.name, event.cat, event.pid, event.tid, event.ts)
                return (*map(bytes, members), bytes(event.dur), arguments)
    found, _ = event_at(text, 0, len(text))
    return (*(found.get(column, b"") for column in _COLUMNS), found.get(ARGUMENTS, b"{}"))


_COLUMNS = ("phase", "name", "category", "process", "thread", "start", "duration")


def _take(rare: Rare, event: _Event) -> None:
    match chr(event.phase):
        case "M":
            _read_label(rare, event.name, event.process, event.thread, event.arguments)
        case "i" | "I" if event.name == WINDOW_END.decode() and event.start != NULL:
            rare.window_end_ns = event.start
        case "X" if event.start != NULL and event.duration != NULL:
            if event.category == b'"Trace"':
                rare.recording_ns = (event.start, event.start + event.duration)
            elif isinstance(event.arguments, dict):
                rare.ranges.append((event.start, event.process, event.name, event.arguments))


def token_text(token: bytes) -> str:
    """The id of a process or thread, as text."""
    return value_text(token[1:-1] if token[:1] == b'"' else token)


def _read_label(rare: Rare, what: str, process: str, thread: str, arguments: Any) -> None:
    if not isinstance(arguments, dict):
        return
    if what == "thread_name" and isinstance(label := arguments.get("name"), str):
        rare.thread_labels.setdefault((process, thread), []).append(label.strip())
    elif what == "process_name" and isinstance(label := arguments.get("name"), str):
        rare.process_names[process] = label.strip()
    elif what == "process_labels" and isinstance(label := arguments.get("labels"), str):
        rare.process_labels[process] = label.strip()


def thread_label(labels: list[str], process_name: str | None) -> str | None:
    """The most telling of several names: one that is not just the program's."""
    own = [label for label in labels if not process_name or f"({process_name})" not in label]
    chosen = own or labels
    return chosen[0] if chosen else None


def device_in(text: str) -> int | None:
    """The device number in ``0``, ``GPU 3`` or ``GPU 3 Counters``."""
    digits = [word for word in text.split() if word.isdigit()]
    return int(digits[0]) if digits and len(digits[0]) < 6 else None


def kernel_counter_table(rare: Rare, names: Names) -> Table | None:
    """Hardware counters by launch, or None if the file has none."""
    rows = [
        (launch, name, metric, value, device_in(process))
        for launch, (_, process, name, metrics) in enumerate(sorted(rare.ranges, key=_by_time))
        for metric, value in metrics.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if not rows:
        return None
    launch, kernel, metric, value, device = zip(*rows, strict=True)
    return table(
        "kernel_counters",
        {
            "launch": np.array(launch, np.int64),
            "name": np.array(names.ids_of(kernel), np.int32),
            "metric": np.array(names.ids_of(metric), np.int32),
            "value": np.array(value, np.float64),
            "device": np.array([d or 0 for d in device], np.int32),
        },
        {"device": np.array([d is None for d in device])},
    )


def _by_time(range_: tuple[int, str, str, dict[str, Any]]) -> int:
    return range_[0]
