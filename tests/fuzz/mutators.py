"""Damages recordings: bytes, JSON values, and changes that must change no answer."""

import copy
import gzip
import json
import random
import re

NUMBERS = (0, -1, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**400, 1e308)
VALUES = (*NUMBERS, None, True, "", "\0", "\ud800", "-1", "1e999", [], {}, [[[]]], {"": {}})
FRAGMENTS = (b"\0", b"\xff" * 8, b"{", b"}", b"[", b'"', b"\\u0000", b"-", b"1e9999", b",,", b"nan")


def damaged(raw: bytes, rng: random.Random) -> bytes:
    """A few bytes flipped, cut, doubled, swapped for others, or replaced by telling fragments."""
    packed = raw[:2] == b"\x1f\x8b"
    inside = packed and rng.random() < 0.9
    data = bytearray(gzip.decompress(raw) if inside else raw)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 2, 4, 8, 64, 1024)))
        how = rng.randrange(6)
        if how == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            del data[at:end]
        elif how == 2:
            data[at:at] = data[at:end] * rng.choice((1, 3))
        elif how == 3:
            data[at:end] = rng.randbytes(end - at)
        elif how == 4:
            data[at:at] = rng.choice(FRAGMENTS)
        elif rng.random() < 0.2:
            del data[at:]
    return gzip.compress(bytes(data), 1) if inside else bytes(data)


def odd_values(document: object, rng: random.Random) -> object:
    """The document with some values and keys of its tree replaced, dropped or exchanged."""
    return spoilt(copy.deepcopy(document), rng)


def spoilt(changed: object, rng: random.Random, most: int = 32) -> object:
    """The same in place: up to ``most`` changes."""
    places = list(_places(changed))
    for _ in range(min(most, rng.choice((1, 2, 8, 32))) if places else 0):
        holder, key = rng.choice(places)
        how = rng.randrange(4)
        if how == 0 and isinstance(holder, dict):
            holder.pop(key, None)
        elif how == 1 and isinstance(holder, dict) and key in holder:
            holder[rng.choice(("ts", "dur", "pid", "ph", "", "args"))] = holder[key]
        elif how == 2:
            other, name = rng.choice(places)
            if _has(other, name) and _has(holder, key):
                holder[key] = copy.deepcopy(other[name])
        elif _has(holder, key):
            holder[key] = rng.choice(VALUES)
    return changed


def _places(node: object):
    if isinstance(node, dict):
        for key, value in node.items():
            yield node, key
            yield from _places(value)
    elif isinstance(node, list):
        for key, value in enumerate(node):
            yield node, key
            yield from _places(value)


def _has(holder, key) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


CELLS = (b"", b"-1", b"1e400", b"nan", b"9" * 30, b"\0", b"N/A", b'"', b"18446744073709551616")
_BETWEEN = re.compile(rb"([,\n;:|=\[\](){}]| +)")


def odd_cells(raw: bytes, rng: random.Random) -> bytes:
    """A table, or any text, with some of its words replaced, exchanged or gone, or a line twice."""
    cells = _BETWEEN.split(raw)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, how = rng.randrange(len(cells)), rng.randrange(5)
        if how == 0:
            cells[at] = rng.choice(cells)
        elif how == 1:
            cells[at] = str(rng.choice(NUMBERS)).encode()
        elif how == 2:
            del cells[at : at + rng.choice((1, 2, 20))]
            cells = cells or [b""]
        else:
            cells[at] = rng.choice(CELLS)
    return b"".join(cells)


def odd_messages(raw: bytes, rng: random.Random) -> bytes:
    """Protocol buffers with lengths, tags and numbers that are wrong at places where such stand."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 2, 3)))
        number = rng.choice((0, 1, 2, 127, 128, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**70))
        as_varint = bytearray()
        while number > 0x7F:
            as_varint.append(number & 0x7F | 0x80)
            number >>= 7
        data[at:end] = rng.choice((bytes([*as_varint, number]), bytes([rng.randrange(256)]), b""))
    return bytes(data)


# ------------------------------------------------------------------------------------------------
# Changes of a Kineto document after which every answer must be the same.


def shifted(document: dict, rng: random.Random) -> dict:
    """All of it later, by whole milliseconds."""
    by = rng.randrange(1, 10**6) * 1000
    return _each(document, lambda e: e | {"ts": e["ts"] + by} if "ts" in e else e)


def shuffled(document: dict, rng: random.Random) -> dict:
    """Events in another order."""
    events = list(document["traceEvents"])
    rng.shuffle(events)
    return document | {"traceEvents": events}


def renamed_threads(document: dict, rng: random.Random) -> dict:
    """Host threads have other numbers, in the same order."""
    host = {
        e["tid"]
        for e in document["traceEvents"]
        if str(e.get("cat")) in ("cpu_op", "python_function", "user_annotation", "cuda_runtime")
        and isinstance(e.get("tid"), int)
    }
    by = rng.randrange(1, 1000) * 10**6
    return _each(document, lambda e: e | {"tid": e["tid"] + by} if e.get("tid") in host else e)


def with_metadata_twice(document: dict, rng: random.Random) -> dict:
    """Names of processes and threads are told twice."""
    events = document["traceEvents"]
    return document | {"traceEvents": events + [e for e in events if e.get("ph") == "M"]}


SAME_ANSWER = (shifted, shuffled, renamed_threads, with_metadata_twice)


def _each(document: dict, change) -> dict:
    return document | {"traceEvents": [change(event) for event in document["traceEvents"]]}


def as_bytes(document: object) -> bytes:
    """JSON, also of what JSON does not allow."""
    return json.dumps(document).encode()
