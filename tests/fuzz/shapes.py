"""Damage that knows how a format is built, so that it lies deeper than the first bytes of a file.

Each takes the whole file and gives one of which some part is odd and the rest is sound: a cell of
a database, a field of a message, a member of an archive, an object of a pickle, lines of a text.
"""

import io
import json
import pickle
import random
import re
import sqlite3
import tarfile
import warnings
import zipfile
from contextlib import closing, suppress

from fuzz.mutators import NUMBERS, damaged, spoilt

CELLS = (
    *(None, 0, -1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 1e308, -1e308, float("inf")),
    *("", "\0", "x" * 5000, "9" * 30, "nan", b"", b"\xff\xfe", "\U0001f600"),
)
NAMES = (
    *("", "/", "../x.json", "/etc/x.json", "a\nb.json", "a\0b", "x" * 300, "\u202ex.json", "."),
    *("a/" * 200 + "t.json", "C:\\x.json", "con", "t.json/t.json", "T.JSON", "\ud800.json"),
)
DEPTHS = (3, 100, 1000, 100_000)
ENCODINGS = ("utf-16", "utf-16-be", "utf-32", "utf-8-sig", "latin-1", "cp500")
BREAKS = ("\r", "\r\n", "\n\n", "\n\r", "\x0b", "\x0c", "\x1e", "\x85", "\u2028", "\0", " ")
_DOUBLE = re.compile(r"\d+")
_LONGEST = 1 << 63


def odd_database(raw: bytes, rng: random.Random) -> bytes:
    """An SQLite file with odd cells, rows that stand twice, and tables or columns exchanged."""
    with closing(sqlite3.connect(":memory:")) as held:
        held.deserialize(raw)
        tables = [n for (n,) in held.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        for _ in range(rng.choice((1, 1, 2, 4))):
            with suppress(sqlite3.Error):  # a change that the rest of the file does not allow
                _odd_table(held, rng.choice(tables), rng.choice(tables), rng)
        held.commit()
        return held.serialize()


def _odd_table(held: sqlite3.Connection, table: str, other: str, rng: random.Random) -> None:
    columns = [row[1] for row in held.execute(f'PRAGMA table_info("{table}")')]
    column, second, how = rng.choice(columns), rng.choice(columns), rng.randrange(12)
    some = f"WHERE rowid % {rng.choice((1, 1, 2, 3))} = 0"
    if how == 0:
        held.execute(f'DELETE FROM "{table}" {some}')
    elif how == 1:
        held.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}" {some}')
    elif how == 2:
        held.execute(f'UPDATE "{table}" SET "{column}" = "{second}" {some}')
    elif how == 3:
        held.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
    elif how == 4:
        held.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "odd"')
    elif how == 5 and table != other:
        held.execute(f'DROP TABLE "{table}"')
        held.execute(f'CREATE TABLE "{table}" AS SELECT * FROM "{other}"')
    elif how == 6:
        kind = rng.choice(("VIEW", "TABLE"))
        held.execute(f'ALTER TABLE "{table}" RENAME TO "odd"')
        held.execute(f'CREATE {kind} "{table}" AS SELECT * FROM "odd"')
    elif how == 7:
        held.execute(
            f'UPDATE "{table}" SET "{column}" = "{column}" * ? {some}', (rng.choice(CELLS),)
        )
    else:
        held.execute(f'UPDATE "{table}" SET "{column}" = ? {some}', (rng.choice(CELLS),))


def odd_pickle(raw: bytes, rng: random.Random) -> bytes:
    """Our own sound pickle with odd values in it, in any protocol."""
    return pickle.dumps(spoilt(pickle.loads(raw), rng), rng.randrange(6))


def odd_zip(raw: bytes, rng: random.Random) -> bytes:
    """A zip with a damaged member, an odd name, a name twice, or a link."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = [(n, archive.read(n)) for n in archive.namelist()]
    held = io.BytesIO()
    how = rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2))
    with warnings.catch_warnings(), zipfile.ZipFile(held, "w", how) as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in _odd_members(members, rng):
            info = zipfile.ZipInfo(name.replace("\ud800", "?"))
            info.compress_type = how
            info.external_attr = rng.choice((0, 0o120777 << 16, 0o010644 << 16, 0o100000 << 16))
            archive.writestr(info, content)
    return held.getvalue()


def odd_tar(raw: bytes, rng: random.Random) -> bytes:
    """A tar with the same, and with devices, sockets and links that lead to themselves."""
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        found = [(m.name, archive.extractfile(m)) for m in archive if m.isreg()]
        members = [(name, file.read()) for name, file in found if file]
    held = io.BytesIO()
    form = rng.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    with tarfile.open(fileobj=held, mode="w", format=form) as archive:
        for name, content in _odd_members(members, rng):
            info = tarfile.TarInfo(name)
            info.size, info.linkname = len(content), rng.choice((name, *NAMES))
            info.type = rng.choice((tarfile.REGTYPE,) * 4 + (b"1", b"2", b"3", b"4", b"5", b"6"))
            info.size = info.size if info.type == tarfile.REGTYPE else 0
            with suppress(ValueError, UnicodeError):  # a name that this form cannot hold
                archive.addfile(info, io.BytesIO(content))
    return held.getvalue()


def _odd_members(members: list[tuple[str, bytes]], rng: random.Random) -> list[tuple[str, bytes]]:
    found = list(members)
    at, how = rng.randrange(len(found)), rng.randrange(5)
    name, content = found[at]
    if how == 0:
        found[at] = (rng.choice(NAMES), content)
    elif how == 1:
        found.insert(rng.randrange(len(found) + 1), (name, damaged(content, rng)))
    elif how == 2:
        found.append((rng.choice(NAMES), b""))
    else:
        found[at] = (name, odd_json(content, rng) if content[:1] == b"{" else damaged(content, rng))
    return found


def odd_json(raw: bytes, rng: random.Random) -> bytes:
    """A document with odd values, a key twice, great depth, or comments and other dialects."""
    whole = json.dumps(spoilt(json.loads(raw), rng))
    how, deep = rng.randrange(12), rng.choice(DEPTHS)
    if how == 0:
        nested = "[" * deep + "]" * deep
        whole = whole.replace(rng.choice(("0", "1", "{}", "null")), nested, 1)
    elif how == 1:
        nested = '{"a":' * deep + "1" + "}" * deep
        whole = whole.replace(rng.choice(("0", "1", "{}", "null")), nested, 1)
    elif how == 2:
        whole = _DOUBLE.sub(lambda n: n[0] + rng.choice((".0", "e0", "E+0", ".5e3")), whole)
    elif how == 3:
        whole = whole.replace("{", '{"name": "first", ', rng.choice((1, 3, 99)))
    elif how == 4:
        whole = whole.replace(", ", rng.choice((",\t", " ,", ",\r\n", ",\u00a0", ", /* x */ ")))
    return whole.encode("utf-8", "surrogatepass")


def odd_text(raw: bytes, rng: random.Random) -> bytes:
    """Lines in another order or twice, columns exchanged, other ends of lines, other encodings."""
    text, how = raw.decode("utf-8", "replace"), rng.randrange(8)
    lines = text.split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    if how == 0:
        lines[at], lines[other] = lines[other], lines[at]
    elif how == 1:
        lines[other:other] = [lines[at]] * rng.choice((1, 2, 50))
    elif how == 2:
        rows = [line.split(",") for line in lines]
        first, second = rng.randrange(len(rows[0])), rng.randrange(len(rows[0]))
        for row in rows:
            if max(first, second) < len(row):
                row[first], row[second] = row[second], row[first]
        lines = [",".join(row) for row in rows]
    elif how == 3:
        return text.encode(rng.choice(ENCODINGS), "replace")
    elif how == 4:
        return rng.choice(BREAKS).join(lines).encode()
    elif how == 5:
        return "".join(line + rng.choice(("\n", "\n", "\r\n", *BREAKS)) for line in lines).encode()
    else:  # times that run backwards, counters that wrap
        lines[at] = _DOUBLE.sub(
            lambda n: str(rng.choice((n[0], -int(n[0][:9]), *NUMBERS))), lines[at]
        )
    return "\n".join(lines).encode()


# ------------------------------------------------------------------------------------------------
# Protocol buffers: fields are found, changed, and written again with lengths that are right.

Fields = list[tuple[int, int, object]]  # number, wire type, value: of a message, its own fields


def odd_fields(raw: bytes, rng: random.Random) -> bytes:
    """A message with odd values in some fields, fields twice, or fields that take others' place."""
    fields = _fields(raw)
    if fields is None:
        return damaged(raw, rng)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _odd_field(fields, rng)
    return _packed(fields)


def _odd_field(fields: Fields, rng: random.Random) -> None:
    at, how = rng.randrange(len(fields)), rng.randrange(8)
    number, kind, value = fields[at]
    if isinstance(value, list) and value and rng.random() < 0.9:
        _odd_field(value, rng)
    elif how == 0 and len(fields) > 1:
        del fields[at]
    elif how == 1:
        fields[at:at] = [fields[at]] * rng.choice((1, 2, 30))
    elif how == 2:
        fields[at] = (number, kind, rng.choice([v for _, k, v in fields if k == kind]))
    elif how == 3:
        fields[at] = (rng.choice((number + 1, 1, 2, 3, 4, 15, 2**29 - 1)), kind, value)
    elif kind == 0:
        fields[at] = (
            number,
            0,
            rng.choice([n for n in NUMBERS if isinstance(n, int)]) % _LONGEST * 2,
        )
    elif kind in (1, 5):
        fields[at] = (number, kind, rng.randbytes(8 if kind == 1 else 4))
    else:
        fields[at] = (number, 2, rng.choice((b"", b"\xff\xfe", b"\0", b"9" * 30, b"x" * 5000)))


def _fields(raw: bytes) -> Fields | None:
    """The fields of what is a message; None of what is none."""
    found: Fields = []
    at = 0
    while at < len(raw):
        key, at = _number(raw, at)
        number, kind = key >> 3, key & 7
        if not number or number > 4000 or kind not in (0, 1, 2, 5):
            return None
        value: object
        if kind == 0:
            value, at = _number(raw, at)
        else:
            size, at = _number(raw, at) if kind == 2 else (8 if kind == 1 else 4, at)
            part, at = raw[at : at + size], at + size
            value = part
            if kind == 2 and len(part) > 1 and (inner := _fields(part)):
                value = inner
        found.append((number, kind, value))
    return found if at == len(raw) else None


def _number(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(raw):
        value |= (raw[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not raw[at - 1] & 0x80:
            break
    return value, at


def _packed(fields: Fields) -> bytes:
    out = bytearray()
    for number, kind, value in fields:
        out += _as_number(number << 3 | kind)
        part = _packed(value) if isinstance(value, list) else value
        if isinstance(part, bytes):
            out += (_as_number(len(part)) if kind == 2 else b"") + part
        elif isinstance(part, int):
            out += _as_number(part)
    return bytes(out)


def _as_number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


__all__ = [
    "odd_database",
    "odd_fields",
    "odd_json",
    "odd_pickle",
    "odd_tar",
    "odd_text",
    "odd_zip",
]
