"""Events that are few: names of threads, counters, spans of the recording, counter ranges."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pinchpoint.importers.kineto.reading.document import value_of
from pinchpoint.importers.kineto.reading.fields import NULL, WINDOW_END, Form
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
    counters: list[tuple[int, str, str, float]] = field(default_factory=list)  # time, process, …
    ranges: list[tuple[int, str, str, dict[str, Any]]] = field(default_factory=list)


def read_rare(raw: list[tuple[int, bytes]]) -> Rare:
    """Sort the rare events."""
    rare = Rare()
    for _, text in raw:
        _read(rare, text)
    return rare


def _read(rare: Rare, text: bytes) -> None:
    members, _ = event_at(text, 0, len(text))
    name = value_text(members.get("name", b'""')[1:-1])
    process, thread = (token_text(members.get(key, b"")) for key in ("process", "thread"))
    start = number(members.get("start", b""), Form.NANOSECONDS)
    match chr(phase(members.get("phase", b""))):
        case "M":
            _read_label(rare, name, process, thread, value_of(members.get("arguments", b"{}")))
        case "C" if start != NULL:
            _read_counter(rare, start, process, name, value_of(members.get("arguments", b"{}")))
        case "i" | "I" if name == WINDOW_END.decode() and start != NULL:
            rare.window_end_ns = start
        case "X":
            duration = number(members.get("duration", b""), Form.NANOSECONDS)
            if start == NULL or duration == NULL:
                return
            if members.get("category") == b'"Trace"':
                rare.recording_ns = (start, start + duration)
            else:
                arguments = value_of(members.get("arguments", b"{}"))
                if isinstance(arguments, dict):
                    rare.ranges.append((start, process, name, arguments))


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


def _read_counter(rare: Rare, start: int, process: str, name: str, arguments: Any) -> None:
    if not isinstance(arguments, dict):
        return
    for key, value in arguments.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            label = name if key in ("value", name) else f"{name}: {key}"
            rare.counters.append((start, process, label, float(value)))


def thread_label(labels: list[str], process_name: str | None) -> str | None:
    """The most telling of several names: one that is not just the program's."""
    own = [label for label in labels if not process_name or f"({process_name})" not in label]
    chosen = own or labels
    return chosen[0] if chosen else None


def device_in(text: str) -> int | None:
    """The device number in ``0``, ``GPU 3`` or ``GPU 3 Counters``."""
    digits = [word for word in text.split() if word.isdigit()]
    return int(digits[0]) if digits and len(digits[0]) < 6 else None


def counter_table(rare: Rare, names: Names, zero_ns: int, rank: int | None) -> Table | None:
    """The counters, or None if the file has none."""
    if not rare.counters:
        return None
    samples = sorted(rare.counters, key=lambda sample: sample[0])
    devices = [device_in(process) for _, process, _, _ in samples]
    missing = {"device": np.array([d is None for d in devices])}
    columns: dict[str, Any] = {
        "time_ns": np.array([time - zero_ns for time, *_ in samples], np.int64),
        "name": np.array(names.ids_of(name for _, _, name, _ in samples), np.int32),
        "value": np.array([value for *_, value in samples]),
        "device": np.array([d or 0 for d in devices], np.int32),
    }
    if rank is not None:
        columns["rank"] = np.full(len(samples), rank, np.int32)
    return table("counters", columns, missing)


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
