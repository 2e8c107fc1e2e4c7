"""The scanner that needs no compiler: msgspec where the text is strict JSON, else plain Python.

It gives the same columns as the native one, several times more slowly.
"""

from collections.abc import Iterable

import msgspec
import numpy as np
from msgspec import Raw

from pinchpoint.importers.kineto.reading.fields import (
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
from pinchpoint.importers.kineto.reading.lenient import (
    Incomplete,
    Malformed,
    Status,
    content,
    event_at,
    number,
    phase,
    skip_separators,
    without_link,
)
from pinchpoint.importers.kineto.reading.scan import Buffer, Chunk, Place
from pinchpoint.regex import regex

_EVENTS = msgspec.json.Decoder(list[dict[str, Raw]])
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_TEXTS = msgspec.json.Decoder(list[Raw])
_EVENT_COLUMNS = {key.text: key.column for key in EVENT_KEYS}
_ARGUMENT_COLUMNS = {key.text: key.column for key in ARGUMENT_KEYS}

# Keys are compared as written. msgspec compares them decoded, so text that spells letters of a
# key as escapes is left to the Python reader.
_ESCAPED_KEY = regex(rb'\\u00[2-7][0-9a-fA-F][^"]{0,100}"[\x00-\x20]*:')
_LAST_EVENT = regex(rb"\}[\x00-\x20,]*\]")

_FORM = dict(zip(COLUMNS, FORMS, strict=True))
_CELLS = {  # columns whose value is not found on the way, with what stands for an absent one
    lane: tuple(
        (name, _FORM[name], ABSENT if _FORM[name] in INTERNED else NULL)
        for name in names
        if name not in (PLACE, "start", "duration")
    )
    for lane, names in LANE_COLUMNS.items()
}


class PlainScanner:
    """Scans with msgspec and Python; see ``Scanner`` in ``scan``."""

    def __init__(self, wanted: Iterable[int] = (), *, keeps_arguments: bool = False) -> None:
        self._wanted = frozenset(wanted)
        self._keeps_arguments = keeps_arguments
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
        """See :class:`pinchpoint.importers.kineto.reading.scan.Scanner`."""
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
            if self._add(members):
                self._chunk.raw.append((self._chunk.events - 1, text[at:stop]))
            at = stop
        return Status.MORE, end

    def _scan_strict(self, text: bytes, limit: int) -> int:
        """Read as much as is strict JSON; the position after it."""
        if _ESCAPED_KEY.search(text):
            return 0
        for end in (len(text), _end_of_list(text)):
            body = b"[" + text[:end].strip(b", \t\r\n") + b"]"
            try:
                if limit < end and max(len(raw) for raw in _TEXTS.decode(body)) > limit:
                    return 0
                events = [_members(event) for event in _EVENTS.decode(body)]
            except (msgspec.MsgspecError, Malformed, RecursionError, ValueError):
                continue
            before = self._chunk.events
            kept = [position for position, members in enumerate(events) if self._add(members)]
            if kept:
                texts = _TEXTS.decode(body)
                self._chunk.raw += [(before + place, bytes(texts[place])) for place in kept]
            return end
        return 0

    def _said(self, members: dict[str, bytes]) -> dict[str, bytes]:
        """The members of a host event, with its arguments as they are kept."""
        said = {k: v for k, v in members.items() if k not in (ARGUMENTS, "link")}
        if self._keeps_arguments and content(members.get("category", b""), Form.TEXT) is None:
            arguments, link = members.get(ARGUMENTS), NULL
            if arguments is not None and "link" in members:
                arguments, link = without_link(arguments, members["link"])
            if link != NULL:
                said["link"] = b"%d" % link
            if arguments is not None:
                said[ARGUMENTS] = arguments
        return said

    def _add(self, members: dict[str, bytes]) -> bool:
        """Take an event; whether its text is to be kept."""
        rows, get = self._chunk, members.get
        start = number(get("start", b""), Form.NANOSECONDS)
        took = number(get("duration", b""), Form.NANOSECONDS)
        timed = start != NULL
        category, name = members.get("category", b""), members.get("name", b"")
        lane = lane_of(
            phase(get("phase", b"")),
            content(category, Form.TEXT) or b"",
            content(name, Form.TEXT) or b"",
            timed,
            timed and took != NULL,
        )
        rows.lanes[lane] += 1
        if lane is Lane.HOST:
            members = self._said(members)
            get = members.get
        if lane in _CELLS:
            row = [rows.events, start, took]
            row.append(self._place(get("process", b""), get("thread", b"")))
            for column, form, absent in _CELLS[lane]:
                token = get(column)
                row.append(absent if token is None else self._cell(token, form))
            if lane in (Lane.DEVICE, Lane.PAIR) and row[-2] == ABSENT:
                row[-1] = ABSENT
            rows.rows[lane].append(row)
        rows.events += 1
        return lane is Lane.RAW or self._events_before + rows.events - 1 in self._wanted

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
        for lane, cells in _CELLS.items():
            names = ("event", "start", "duration", PLACE, *(name for name, _, _ in cells))
            table = np.array(self.rows[lane], np.int64).reshape(-1, len(names))
            lanes[lane] = {name: table[:, i].copy() for i, name in enumerate(names)}
        return Chunk(
            lanes,
            self.events,
            self.raw,
            untimed=self.lanes[Lane.UNTIMED],
            unread=self.lanes[Lane.UNREAD],
        )


def _members(event: dict[str, Raw]) -> dict[str, bytes]:
    """The same as ``lenient.event_at`` gives."""
    members = {
        _EVENT_COLUMNS[key]: bytes(raw) for key, raw in event.items() if key in _EVENT_COLUMNS
    }
    arguments = event.get("args")
    if arguments is None:
        return members
    text = bytes(arguments)
    if not text.startswith(b"{"):
        raise Malformed  # an earlier args may have been an object
    for key, raw in _MEMBERS.decode(text).items():
        if key in _ARGUMENT_COLUMNS:
            members[_ARGUMENT_COLUMNS[key]] = bytes(raw)
    members[ARGUMENTS] = text
    return members


def _end_of_list(text: bytes) -> int:
    """The position of the bracket that probably closes the list of events."""
    end = 0
    for found in _LAST_EVENT.finditer(text):
        end = found.end() - 1
    return end
