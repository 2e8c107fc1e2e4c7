"""The scanner that needs no compiler: msgspec where the text is strict JSON, else plain Python.

It gives the same columns as the native one, several times more slowly.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from pinchpoint.importers.kineto.fields import (
    ABSENT,
    ARGUMENT_KEYS,
    ARGUMENTS,
    COLUMNS,
    EVENT_KEYS,
    FORMS,
    INTERNED,
    LANE_COLUMNS,
    NULL,
    PLACE,
    Form,
    Lane,
    lane_of,
)
from pinchpoint.importers.kineto.lenient import (
    Incomplete,
    Malformed,
    Status,
    content,
    event_at,
    number,
    phase,
    skip_separators,
)
from pinchpoint.importers.kineto.scan import Buffer, Chunk, Place

_NOTHING = Raw(b"")
_Arguments = msgspec.defstruct(
    "_Arguments",
    [(key.column, Raw, _NOTHING) for key in ARGUMENT_KEYS],
    rename={key.column: key.text for key in ARGUMENT_KEYS},
)
_Event = msgspec.defstruct(
    "_Event",
    [*((key.column, Raw, _NOTHING) for key in EVENT_KEYS), (ARGUMENTS, _Arguments, None)],
    rename={key.column: key.text for key in EVENT_KEYS} | {ARGUMENTS: "args"},
)
_ArgumentText = msgspec.defstruct(
    "_ArgumentText", [(ARGUMENTS, Raw, _NOTHING)], rename={ARGUMENTS: "args"}
)
_EVENTS: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[_Event])  # type: ignore[valid-type]
_TEXTS = msgspec.json.Decoder(list[Raw])
_ARGUMENT_TEXTS: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[_ArgumentText])  # type: ignore[valid-type]

# Keys are compared as written. msgspec compares them decoded, so text that spells letters of a
# key as escapes is left to the Python reader.
_ESCAPED_KEY = re.compile(rb'\\u00[2-7][0-9a-fA-F][^"]{0,100}"[\x00-\x20]*:')
_LAST_EVENT = re.compile(rb"\}[\x00-\x20,]*\]")
_FORM = dict(zip(COLUMNS, FORMS, strict=True))
_OF_EVENT = frozenset(key.column for key in EVENT_KEYS)
_PLANS = {
    lane: [(c, _FORM[c], c in _OF_EVENT) for c in columns if c != PLACE]
    for lane, columns in LANE_COLUMNS.items()
}


class PlainScanner:
    """Scans with msgspec and Python; see :class:`pinchpoint.importers.kineto.scan.Scanner`."""

    def __init__(self, wanted: Iterable[int] = ()) -> None:
        self._wanted = frozenset(wanted)
        self._events_before = 0
        self._ids: dict[bytes, int] = {}
        self._places: dict[Place, int] = {}
        self._chunk = _Rows()

    def texts(self) -> list[bytes]:
        """The interned texts in order of their positions."""
        return list(self._ids)

    def places(self) -> list[Place]:
        """The interned places in order of their positions."""
        return list(self._places)

    def flush(self) -> Chunk:
        """The events since the last flush."""
        done, self._chunk = self._chunk, _Rows()
        self._events_before += done.events
        return done.chunk()

    def scan(self, text: Buffer, at: int, stop: int, limit: int) -> tuple[Status, int]:
        """See :class:`pinchpoint.importers.kineto.scan.Scanner`."""
        text, end = bytes(text[:stop]), stop
        if at == 0:
            at = self._scan_strict(text, limit)
        while (at := skip_separators(text, at, end)) < end:
            if text[at] == ord("]"):
                return Status.DONE, at
            if text[at] != ord("{"):
                return Status.BAD, at
            try:
                members, stop = event_at(text, at, min(end, at + limit))
            except Malformed:
                return Status.BAD, at
            except Incomplete:
                return (Status.LONG if end - at > limit else Status.MORE), at
            self._add_members(members, text[at:stop])
            at = stop
        return Status.MORE, end

    def _scan_strict(self, text: bytes, limit: int) -> int:
        """Read as much as is strict JSON; the position after it."""
        if _ESCAPED_KEY.search(text):
            return 0
        for end in (len(text), _end_of_list(text)):
            body = b"[" + text[:end].strip(b", \t\r\n") + b"]"
            try:
                events = _EVENTS.decode(body)
                if limit < end and max(len(raw) for raw in _TEXTS.decode(body)) > limit:
                    return 0
            except (msgspec.MsgspecError, RecursionError, ValueError):
                continue
            self._add_strict(events, body)
            return end
        return 0

    def _add_strict(self, events: list[Any], body: bytes) -> None:
        rows, raws, collectives = self._chunk, [], []
        for position, event in enumerate(events):
            lane = self._lane(
                bytes(event.phase),
                bytes(event.category),
                bytes(event.name),
                bytes(event.start),
                bytes(event.duration),
            )
            rows.lanes[lane] += 1
            if lane is Lane.RAW or self._is_wanted():
                raws.append((position, rows.events))
            if lane in _PLANS:
                arguments = event.arguments or _NO_ARGUMENTS
                row = [
                    self._cell(bytes(getattr(event if own else arguments, column)), form)
                    for column, form, own in _PLANS[lane]
                    if column is not ARGUMENTS
                ]
                if lane is Lane.DEVICE:
                    row.append(ABSENT)
                    if row[-2] != ABSENT:
                        collectives.append((position, row))
                row += (self._place(bytes(event.process), bytes(event.thread)), rows.events)
                rows.rows[lane].append(row)
            rows.events += 1
        if raws:
            texts = _TEXTS.decode(body)
            rows.raw += [(event, bytes(texts[position])) for position, event in raws]
        if collectives:
            arguments_of = _ARGUMENT_TEXTS.decode(body)
            for position, row in collectives:
                row[-3] = self._cell(bytes(arguments_of[position].arguments), Form.JSON)

    def _add_members(self, members: dict[str, bytes], text: bytes) -> None:
        rows, get = self._chunk, members.get
        lane = self._lane(
            get("phase", b""),
            get("category", b""),
            get("name", b""),
            get("start", b""),
            get("duration", b""),
        )
        rows.lanes[lane] += 1
        if lane is Lane.RAW or self._is_wanted():
            rows.raw.append((rows.events, text))
        if lane in _PLANS:
            row = [self._cell(get(column, b""), form) for column, form, _ in _PLANS[lane]]
            if lane is Lane.DEVICE and row[-2] == ABSENT:
                row[-1] = ABSENT
            place = self._place(get("process", b""), get("thread", b""))
            row += (place, rows.events)
            rows.rows[lane].append(row)
        rows.events += 1

    def _is_wanted(self) -> bool:
        return self._events_before + self._chunk.events in self._wanted

    def _lane(self, phase_: bytes, category: bytes, name: bytes, start: bytes, took: bytes) -> Lane:
        timed = number(start, Form.NANOSECONDS) != NULL
        return lane_of(
            phase(phase_),
            content(category, Form.TEXT) or b"",
            content(name, Form.TEXT) or b"",
            timed,
            timed and number(took, Form.NANOSECONDS) != NULL,
        )

    def _place(self, process: bytes, thread: bytes) -> int:
        place = content(process, Form.TOKEN), content(thread, Form.TOKEN)
        return self._places.setdefault(place, len(self._places))

    def _cell(self, token: bytes, form: Form) -> int:
        if form in INTERNED:
            text = content(token, form)
            return ABSENT if text is None else self._ids.setdefault(text, len(self._ids))
        return phase(token) if form is Form.PHASE else number(token, form)


class _Rows:
    """Rows of a chunk that is being read."""

    def __init__(self) -> None:
        self.events = 0
        self.lanes = dict.fromkeys(Lane, 0)
        self.rows: dict[Lane, list[list[int]]] = {lane: [] for lane in LANE_COLUMNS}
        self.raw: list[tuple[int, bytes]] = []

    def chunk(self) -> Chunk:
        """The rows as columns."""
        lanes = {}
        for lane, names in LANE_COLUMNS.items():
            names = (*(name for name in names if name != PLACE), PLACE, "event")
            cells = np.array(self.rows[lane], np.int64).reshape(-1, len(names))
            lanes[lane] = {name: cells[:, i].copy() for i, name in enumerate(names)}
        return Chunk(
            lanes,
            self.events,
            self.raw,
            untimed=self.lanes[Lane.UNTIMED],
            unread=self.lanes[Lane.UNREAD],
        )


_NO_ARGUMENTS = _Arguments()


def _end_of_list(text: bytes) -> int:
    """The position of the bracket that probably closes the list of events."""
    end = 0
    for found in _LAST_EVENT.finditer(text):
        end = found.end() - 1
    return end
