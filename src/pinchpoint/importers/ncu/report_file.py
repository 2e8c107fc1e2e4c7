"""``.ncu-rep``: NVIDIA's report container, version 7, read by its published layout.

The file is ``NVR\\0`` and then length-prefixed protobuf messages: a header, and blocks of a block
header and a payload of sources, results and ranges. Only what the analyses need is decoded; the
embedded binaries (most of the bytes) are skipped over.
"""

import struct
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.wire import (
    FIXED32,
    FIXED64,
    VARINT,
    Field,
    MalformedMessage,
    fields,
)
from pinchpoint.importers.ncu.launch import Launch, Launches, RuleResult, unit_of

MAGIC = b"NVR\x00"
_VERSION = 7  # the one whose .proto files are known
_SIZE = struct.Struct("<I")

# Field numbers of the published .proto files.
_FILE_VERSION = 1
# of a file.
_SOURCES, _RESULTS, _SESSION, _STRINGS, _PAYLOAD_BYTES, _PROCESS = 1, 2, 3, 4, 5, 6
_FUNCTION, _DEMANGLED, _GRID, _BLOCK, _METRIC = 6, 7, 10, 11, 13  # of a result
_RULE, _CONTEXT, _STREAM = 19, 22, 23  # of a result
_SESSION_DEVICE, _SESSION_VERSION = 6, 8  # of a session
_WRITER = "Nsight Compute Target"
_RULE_KINDS = {0: "INF", 1: "INF", 2: "WRN", 3: "ERR", 4: "OPT"}


@dataclass
class _State:
    """What later blocks need from earlier ones."""

    strings: list[str] = field(default_factory=list)
    process: str | None = None
    version: str | None = None  # of ncu
    devices: dict[int, dict[str, float | str]] = field(default_factory=dict)


def read_report(path: Path, shown: Path) -> Launches:
    """All profiled kernels. Raises UnreadableFile for another version or a damaged file.

    A report that is cut off gives the launches before the cut; one that is cut before its first
    launch is refused.
    """
    # Not mapped into memory: a file that becomes shorter meanwhile would end the process (SIGBUS).
    return _read(memoryview(path.read_bytes()), shown)


def _read(content: memoryview, shown: Path) -> Launches:
    state = _State()
    launches: list[Launch] = []
    try:
        header, at = _message(content, len(MAGIC))
        version = next((f.integer for f in fields(header) if f.number == _FILE_VERSION), None)
    except MalformedMessage as error:
        raise _damaged(shown, error) from None
    if version != _VERSION:
        raise UnreadableFile(
            f"{shown}: report layout {version}; only layout {_VERSION} is published",
            hint="export it instead: ncu --import FILE --page raw --csv > FILE.csv",
        )
    cut = 0
    try:
        for block in _blocks(content, at, state):
            launches += [_launch(result, state) for result in block]
    except MalformedMessage as error:
        if not launches:
            raise _damaged(shown, error) from None
        cut = 1
    for launch in launches:
        _add_device_facts(launch, state)
    return Launches(tuple(launches), cut, state.version)


def _damaged(shown: Path, error: MalformedMessage) -> UnreadableFile:
    return UnreadableFile(
        f"{shown}: damaged or cut-off report of Nsight Compute ({error})",
        hint="copy it again, or export it: ncu --import FILE --page raw --csv > FILE.csv",
    )


def _message(content: memoryview, at: int) -> tuple[memoryview, int]:
    if at + _SIZE.size > len(content):
        raise MalformedMessage("cut off")
    (size,) = _SIZE.unpack_from(content, at)
    start = at + _SIZE.size
    if size > len(content) - start:
        raise MalformedMessage("cut off")
    return content[start : start + size], start + size


def _blocks(content: memoryview, at: int, state: _State) -> Iterator[list[memoryview]]:
    """The results in each block."""
    while at < len(content):
        header, at = _message(content, at)
        counts: dict[int, int] = {}
        for part in fields(header):
            if part.kind == VARINT:
                counts[part.number] = part.integer
            else:
                _take_header(part, state)
        end = at + counts.get(_PAYLOAD_BYTES, 0)
        if end > len(content):
            raise MalformedMessage("cut off")
        results = []
        sources, wanted = counts.get(_SOURCES, 0), counts.get(_RESULTS, 0)
        for place in range(sources + wanted):
            message, at = _message(content[:end], at)
            if place >= sources:
                results.append(message)
        yield results
        at = end


def _take_header(part: Field, state: _State) -> None:
    if part.number == _STRINGS and len(part.bytes):
        state.strings = [f.text for f in fields(part.bytes) if f.number == 1]
    elif part.number == _PROCESS:
        state.process = next((f.text for f in fields(part.bytes) if f.number == 3), None)
    elif part.number == _SESSION:
        for detail in fields(part.bytes):
            if detail.number == _SESSION_DEVICE:
                _take_device(detail.bytes, state)
            elif detail.number == _SESSION_VERSION:
                pair = {f.number: f.text for f in fields(detail.bytes)}
                if pair.get(1) == _WRITER:
                    state.version = pair.get(2, "").split(" ")[0]


def _take_device(message: memoryview, state: _State) -> None:
    number, facts = 0, dict[str, float | str]()
    for part in fields(message):
        if part.number == 1:
            number = part.integer
        elif part.number == 2:
            facts["device__attribute_display_name"] = part.text
        elif part.number == 3:
            pair = {f.number: f for f in fields(part.bytes)}
            if 1 in pair and 2 in pair and (value := _value(pair[2].bytes)) is not None:
                facts[pair[1].text] = value
    state.devices[number] = facts


def _launch(result: memoryview, state: _State) -> Launch:
    launch = Launch("", process=state.process)
    function = ""
    for part in fields(result):
        if part.number == _DEMANGLED:
            launch.name = part.text
        elif part.number == _FUNCTION:
            function = part.text
        elif part.number == _GRID:
            launch.grid = _triple(part.bytes)
        elif part.number == _BLOCK:
            launch.block = _triple(part.bytes)
        elif part.number == _CONTEXT:
            launch.context = part.integer
        elif part.number == _STREAM:
            launch.stream = part.integer
        elif part.number == _METRIC:
            _take_metric(part.bytes, launch, state)
        elif part.number == _RULE:
            launch.rules += _rules(part.bytes)
    launch.name = launch.name or function or "(unnamed kernel)"
    device = launch.numbers.get("launch__device_id")
    launch.device = int(device[0]) if device is not None and 0 <= device[0] < 2**16 else 0
    return launch


def _take_metric(message: memoryview, launch: Launch, state: _State) -> None:
    name, value = 0, None
    for part in fields(message):
        if part.number == 1:
            name = part.integer
        elif part.number == 2:
            value = _value(part.bytes)
    if name >= len(state.strings) or value is None:
        return
    metric = state.strings[name]
    if isinstance(value, str):
        launch.texts[metric] = value
    else:
        launch.numbers[metric] = (value, unit_of(metric))


def _value(message: memoryview) -> float | str | None:
    """A metric's value: text, float, double, or an unsigned integer of 32 or 64 bits."""
    for part in fields(message):
        if part.number == 1:
            return part.text
        if part.kind in (FIXED32, FIXED64):
            return part.real
        if part.kind == VARINT:
            return float(part.integer)
    return None


def _triple(message: memoryview) -> tuple[int, int, int] | None:
    size = {f.number: f.integer for f in fields(message)}
    x, y, z = (size.get(axis, 0) for axis in (1, 2, 3))
    return (x, y, z) if min(x, y, z) > 0 and max(x, y, z) < 2**32 else None


def _rules(message: memoryview) -> Iterator[RuleResult]:
    rule = section = ""
    said = []
    for part in fields(message):
        if part.number == 1:
            rule = part.text
        elif part.number == 4:
            section = part.text
        elif part.number == 3:
            items = (item for body in fields(part.bytes) for item in fields(body.bytes))
            said += [item.bytes for item in items if item.number == 1 and len(item.bytes)]
    for message_ in said:
        words = {f.number: f for f in fields(message_)}
        if 1 in words:
            kind = _RULE_KINDS.get(words[2].integer if 2 in words else 0, "INF")
            yield RuleResult(rule, section, kind, words[1].text)


def _add_device_facts(launch: Launch, state: _State) -> None:
    for name, value in state.devices.get(launch.device, {}).items():
        if isinstance(value, str):
            launch.texts.setdefault(name, value)
        else:
            launch.numbers.setdefault(name, (value, ""))
    numbers = launch.numbers
    major = numbers.get("device__attribute_compute_capability_major")
    minor = numbers.get("device__attribute_compute_capability_minor")
    if major is not None and minor is not None and launch.capability is None:
        launch.capability = (int(major[0]), int(minor[0]))
