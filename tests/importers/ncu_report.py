"""Writes reports of Nsight Compute by the published layout, for tests."""

import struct
from typing import Any

from xplane_messages import varint


def field(number: int, value: int | float | str | bytes) -> bytes:
    """One protobuf field: int as varint, float as double, text and bytes as they are."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def sized(message: bytes) -> bytes:
    return struct.pack("<I", len(message)) + message


def result(strings: list[str], name: str, metrics: dict[str, Any], *more: bytes) -> bytes:
    """A profiled kernel; its metric names are added to ``strings``."""
    out = field(7, name) + field(10, field(1, 2) + field(2, 3) + field(3, 1))
    out += field(11, field(1, 128) + field(2, 1) + field(3, 1)) + field(22, 1) + field(23, 7)
    for metric, value in metrics.items():
        strings.append(metric)
        place = {str: 1, float: 3, int: 5}[type(value)]
        out += field(13, field(1, len(strings) - 1) + field(2, field(place, value)))
    return out + b"".join(more)


def rule(identifier: str, section: str, text: str, kind: int) -> bytes:
    """A rule's message inside a result."""
    said = field(1, text) + field(2, kind) + field(3, 1) + field(4, "title")
    return field(19, field(1, identifier) + field(4, section) + field(3, field(1, field(1, said))))


def report(results: list[bytes], strings: list[str], *, version: int = 7) -> bytes:
    """A whole report: a session block, a block with a source, a block with the results."""
    session = field(8, field(1, "Nsight Compute Target") + field(2, "2025.3.1.0 (build 1)"))
    device = field(6, field(1, 0) + field(2, "NVIDIA TEST") + field(3, _attribute("sms", 8)))
    payload = sized(b"an embedded binary") + b"".join(sized(r) for r in results)
    table = b"".join(field(1, text) for text in strings)
    header = field(1, 1) + field(2, len(results)) + field(4, table) + field(5, len(payload))
    return (
        b"NVR\x00"
        + sized(field(1, version))
        + sized(field(3, session))
        + sized(field(3, device))
        + sized(header)
        + payload
    )


def _attribute(name: str, value: int) -> bytes:
    return field(1, f"device__attribute_{name}") + field(2, field(5, value))
