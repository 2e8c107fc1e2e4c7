# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, overflowcheck=False
"""The native scanner: text of events to columns, without the interpreter lock.

It reads what ``lenient.py`` defines, and nothing else; tests compare the two on every trace we
have and on broken ones. Which keys, columns and lanes there are comes from ``fields.py``.
"""

import os

import numpy as np

from pinchpoint.importers.kineto import fields
from pinchpoint.importers.kineto.lenient import Status
from pinchpoint.importers.kineto.scan import Chunk

from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from pinchpoint.importers.kineto._pool cimport NO_MEMORY, Pool, empty, grow_table, intern, is_text
from pinchpoint.importers.kineto._pool cimport mixed
from pinchpoint.importers.kineto._text cimport Bytes, number, plain_number, skip_blanks
from pinchpoint.importers.kineto._text cimport skip_separators, string_end, value_end, word

cdef enum:
    MOST_COLUMNS = 64
    MOST_LANES = 16
    LONGEST_KEY = 32
    PLACE = -1  # stands for the column of places

cdef int MORE = Status.MORE
cdef int DONE = Status.DONE
cdef int BAD = Status.BAD
cdef int LONG = Status.LONG
cdef int64_t NULL_VALUE = fields.NULL
cdef int64_t ABSENT = fields.ABSENT
cdef int INTEGER = fields.Form.INTEGER
cdef int NANOSECONDS = fields.Form.NANOSECONDS
cdef int THOUSANDTHS = fields.Form.THOUSANDTHS
cdef int TEXT = fields.Form.TEXT
cdef int TOKEN = fields.Form.TOKEN
cdef int JSON = fields.Form.JSON
cdef int PHASE = fields.Form.PHASE
cdef int ADDRESS = fields.Form.ADDRESS
cdef int HOST = fields.Lane.HOST
cdef int DEVICE = fields.Lane.DEVICE
cdef int FLOW = fields.Lane.FLOW
cdef int MEMORY = fields.Lane.MEMORY
cdef int RAW = fields.Lane.RAW
cdef int IGNORED = fields.Lane.IGNORED
cdef int UNTIMED = fields.Lane.UNTIMED
cdef int UNREAD = fields.Lane.UNREAD
cdef int COL_PHASE = fields.COLUMNS.index("phase")
cdef int COL_CATEGORY = fields.COLUMNS.index("category")
cdef int COL_NAME = fields.COLUMNS.index("name")
cdef int COL_START = fields.COLUMNS.index("start")
cdef int COL_DURATION = fields.COLUMNS.index("duration")
cdef int COL_PROCESS = fields.COLUMNS.index("process")
cdef int COL_THREAD = fields.COLUMNS.index("thread")
cdef int COL_COLLECTIVE = fields.COLUMNS.index("collective")
cdef int COL_ARGUMENTS = fields.COLUMNS.index(fields.ARGUMENTS)
cdef uint64_t ARGUMENTS_UNKNOWN = (1 << len(fields.EVENT_KEYS)) - 1


cdef struct Key:
    int length
    int column
    int form
    int shift
    uint64_t head
    uint8_t text[LONGEST_KEY]


cdef struct Keys:
    # keys of one kind, grouped by length
    Key key[MOST_COLUMNS]
    int first[LONGEST_KEY + 1]
    int after[LONGEST_KEY + 1]


cdef struct Place:
    int64_t process
    int64_t thread


cdef struct Rows:
    # one lane: cells[column * room + row]
    int columns
    int column[MOST_COLUMNS]
    int64_t* cells
    int64_t count
    int64_t room


cdef struct Event:
    # values of numeric columns; begin and end of textual ones; a bit for each column it has
    uint64_t known
    int64_t value[MOST_COLUMNS]
    Bytes begin[MOST_COLUMNS]
    Bytes end[MOST_COLUMNS]


cdef struct Span:
    int64_t event
    Py_ssize_t begin
    Py_ssize_t end


cdef inline uint64_t first_bytes(Bytes p, int64_t n, Bytes e) noexcept nogil:
    # up to eight bytes of a text of n bytes; e: what may not be read
    cdef uint64_t value = 0
    if e - p < 8:
        memcpy(&value, p, n if n < 8 else 8)
        return value
    value = word(p)
    if n < 8:
        value &= (<uint64_t>1 << (8 * n)) - 1
    return value


cdef inline Key* find_key(Keys* keys, Bytes p, int64_t n, Bytes e) noexcept nogil:
    cdef int k
    cdef uint64_t head
    cdef Key* key
    if n > LONGEST_KEY or n == 0 or keys.first[n] == keys.after[n]:
        return NULL
    head = first_bytes(p, n, e)
    for k in range(keys.first[n], keys.after[n]):
        key = &keys.key[k]
        if key.head == head and (n <= 8 or memcmp(key.text + 8, p + 8, n - 8) == 0):
            return key
    return NULL


NO_CELLS = np.zeros(0, np.int32)


cdef fill_keys(Keys* keys, declared):
    by_length = sorted(declared, key=lambda key: len(key.text))
    cdef int n, k, position = 0
    cdef bytes text
    for n in range(LONGEST_KEY + 1):
        keys.first[n] = position
        for key in by_length:
            text = key.text.encode()
            if len(text) != n:
                continue
            keys.key[position].length = n
            keys.key[position].column = fields.COLUMNS.index(key.column)
            keys.key[position].form = key.form
            keys.key[position].shift = (
                3 if key.form in (fields.Form.NANOSECONDS, fields.Form.THOUSANDTHS) else 0
            )
            for k in range(n):
                keys.key[position].text[k] = text[k]
            keys.key[position].head = first_bytes(text, n, text)
            position += 1
        keys.after[n] = position


# ---------------------------------------------------------------- scanner


cdef class NativeScanner:
    """Scans in C; see :class:`pinchpoint.importers.kineto.scan.Scanner`."""

    cdef Keys event_keys
    cdef Keys argument_keys
    cdef Pool pool
    cdef Rows rows[MOST_LANES]
    cdef int lane_of_text[MOST_COLUMNS]
    cdef int categories
    cdef int64_t memory_event
    cdef int form[MOST_COLUMNS]
    cdef int64_t recent[MOST_COLUMNS]
    cdef int columns
    cdef int64_t events
    cdef int64_t lanes[MOST_LANES]
    cdef Place* place
    cdef int64_t place_count
    cdef int64_t last_place
    cdef int64_t* place_slot
    cdef int64_t place_slots
    cdef Span* spans
    cdef int64_t span_count
    cdef int64_t span_room
    cdef list raw
    cdef readonly str name
    cdef readonly int block_bytes

    def __cinit__(self):
        cdef int lane, k
        cdef bytes text
        self.name = "native"
        self.block_bytes = 4 << 20
        self.raw = []
        self.pool.seed = int.from_bytes(os.urandom(8), "little")
        if not grow_table(&self.pool):
            raise MemoryError
        fill_keys(&self.event_keys, fields.EVENT_KEYS)
        fill_keys(&self.argument_keys, fields.ARGUMENT_KEYS)
        self.columns = len(fields.COLUMNS)
        for k in range(self.columns):
            self.form[k] = fields.FORMS[k]
            self.recent[k] = -1
        for lane, names in fields.LANE_COLUMNS.items():
            self.rows[lane].columns = len(names)
            for k, column in enumerate(names):
                self.rows[lane].column[k] = (
                    PLACE if column == fields.PLACE else fields.COLUMNS.index(column)
                )
        for category, lane in fields.CATEGORY_LANES.items():
            text = category.encode()
            self.lane_of_text[intern(&self.pool, text, len(text))] = lane
        self.categories = len(fields.CATEGORY_LANES)
        self.memory_event = intern(&self.pool, fields.MEMORY_EVENT, len(fields.MEMORY_EVENT))

    def __dealloc__(self):
        cdef int lane
        empty(&self.pool)
        free(self.spans)
        free(self.place)
        free(self.place_slot)
        for lane in range(MOST_LANES):
            free(self.rows[lane].cells)

    def texts(self):
        """The interned texts in order of their positions."""
        cdef int64_t k
        return [
            (<const char*>self.pool.data + self.pool.text[k].offset)[: self.pool.text[k].length]
            for k in range(self.pool.count)
        ]

    def places(self):
        """The interned places in order of their positions."""
        texts = [*self.texts(), None]
        return [
            (texts[self.place[k].process], texts[self.place[k].thread])
            for k in range(self.place_count)
        ]

    def scan(self, const uint8_t[::1] text, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t limit):
        """See :class:`pinchpoint.importers.kineto.scan.Scanner`."""
        cdef Bytes begin = &text[0]
        cdef Py_ssize_t position = at
        cdef int status
        cdef int64_t k
        cdef const char* raw
        if at >= stop:
            return Status.MORE, at
        with nogil:
            status = self.run(begin, &position, stop, limit)
        if status < 0:
            raise MemoryError
        for k in range(self.span_count):
            raw = <const char*>begin + self.spans[k].begin
            self.raw.append(
                (self.spans[k].event, raw[: self.spans[k].end - self.spans[k].begin])
            )
        self.span_count = 0
        return Status(status), position

    def flush(self):
        """The events since the last flush."""
        cdef int lane, k
        cdef Rows* rows
        lanes = {}
        for lane, names in fields.LANE_COLUMNS.items():
            rows = &self.rows[lane]
            if rows.count == 0:
                lanes[fields.Lane(lane)] = dict.fromkeys((*names, "event"), NO_CELLS)
                continue
            lanes[fields.Lane(lane)] = {
                name: narrowed(rows.cells + k * rows.room, rows.count)
                for k, name in enumerate((*names, "event"))
            }
            rows.count = 0
        chunk = Chunk(
            lanes, self.events, self.raw, untimed=self.lanes[UNTIMED], unread=self.lanes[UNREAD]
        )
        self.raw = []
        self.events = 0
        for lane in range(MOST_LANES):
            self.lanes[lane] = 0
        return chunk

    cdef int run(
        self, Bytes text, Py_ssize_t* position, Py_ssize_t stop, Py_ssize_t limit
    ) noexcept nogil:
        cdef Bytes p = text + position[0]
        cdef Bytes e = text + stop
        cdef Bytes own_end
        cdef Bytes q
        cdef Event event
        cdef int lane
        while True:
            p = skip_separators(p, e)
            position[0] = p - text
            if p >= e:
                return MORE
            if p[0] == c"]":
                return DONE
            if p[0] != c"{":
                return BAD
            own_end = p + limit if e - p > limit else e
            q = self.read(p, own_end, &event)
            if q == NULL:
                return LONG if own_end < e else MORE
            if q == p:
                return BAD
            lane = self.lane_of(&event)
            self.lanes[lane] += 1
            if lane == RAW:
                if not self.keep_text(p - text, q - text):
                    return -1
            elif lane < RAW:
                if not self.keep_row(lane, &event):
                    return -1
            self.events += 1
            p = q

    cdef Bytes read(self, Bytes start, Bytes e, Event* event) noexcept nogil:
        # the end of the event at start; NULL if it is incomplete, start if it is malformed
        cdef Bytes p = start + 1
        cdef Bytes k
        cdef Bytes q
        cdef Bytes arguments = NULL
        cdef int64_t n
        cdef int column = 0
        cdef Key* key
        cdef Keys* keys = &self.event_keys
        event.known = 0
        while True:
            p = skip_separators(p, e)
            if p >= e:
                return NULL
            if p[0] == c"}":
                p += 1
                if arguments == NULL:
                    return p
                event.begin[COL_ARGUMENTS] = arguments
                event.end[COL_ARGUMENTS] = p
                event.known |= <uint64_t>1 << COL_ARGUMENTS
                arguments = NULL
                keys = &self.event_keys
                continue
            if p[0] != c'"':
                return start
            k = p + 1
            q = string_end(k, e)
            if q == NULL:
                return NULL
            n = q - k
            p = skip_blanks(q + 1, e)
            if p >= e:
                return NULL
            if p[0] != c":":
                return start
            p = skip_blanks(p + 1, e)
            if p >= e:
                return NULL
            if arguments == NULL and p[0] == c"{" and n == 4 and memcmp(k, b"args", 4) == 0:
                arguments = p
                keys = &self.argument_keys
                event.known &= ARGUMENTS_UNKNOWN
                p += 1
                continue
            key = find_key(keys, k, n, e)
            if key != NULL:
                column = key.column
                event.known |= <uint64_t>1 << column
                if key.form <= THOUSANDTHS and plain_number(
                    p, e, key.shift, &event.value[column], &p
                ):
                    continue
            q = value_end(p, e, &k)
            if q == NULL:
                return NULL
            if key != NULL:
                if key.form == TEXT or key.form == TOKEN or key.form == JSON:
                    event.begin[column] = p
                    event.end[column] = q
                elif key.form == PHASE:
                    event.value[column] = p[1] if q - p == 3 and p[0] == c'"' else 0
                else:
                    event.value[column] = number(
                        p, q, key.shift, key.form == ADDRESS, NULL_VALUE
                    )
            p = k

    cdef inline int64_t value_of(self, Event* event, int column) noexcept nogil:
        return event.value[column] if event.known >> column & 1 else NULL_VALUE

    cdef inline int64_t text_of(self, Event* event, int column) noexcept nogil:
        # the interned text of a column, ABSENT if it has none, NO_MEMORY
        cdef Bytes p = event.begin[column]
        cdef Bytes e = event.end[column]
        cdef int form = self.form[column]
        if not event.known >> column & 1 or p == e:
            return ABSENT
        if p[0] == c'"':
            if form != JSON:
                p += 1
                e -= 1
        elif form == TEXT:
            return ABSENT
        elif e - p == 4 and memcmp(p, b"null", 4) == 0:
            return ABSENT
        elif form == TOKEN and (p[0] == c"{" or p[0] == c"["):
            return ABSENT
        if column <= COL_THREAD:
            return self.intern_again(column, p, e - p)
        return intern(&self.pool, p, e - p)

    cdef inline int64_t intern_again(self, int column, Bytes p, int64_t n) noexcept nogil:
        # for columns whose text is often that of the event before
        cdef int64_t text = self.recent[column]
        if text >= 0 and is_text(&self.pool, text, p, n):
            return text
        text = intern(&self.pool, p, n)
        self.recent[column] = text
        return text

    cdef inline int lane_of(self, Event* event) noexcept nogil:
        cdef int64_t phase = event.value[COL_PHASE] if event.known >> COL_PHASE & 1 else 0
        cdef bint timed = self.value_of(event, COL_START) != NULL_VALUE
        cdef int64_t category, name
        cdef int known
        if phase == 88:  # X
            known = self.lane_of_category(event)
            if known == RAW:
                return RAW
            if not timed or self.value_of(event, COL_DURATION) == NULL_VALUE:
                return UNTIMED
            return HOST if known == IGNORED else known
        if phase == 115 or phase == 102 or phase == 116:  # s f t
            if self.lane_of_category(event) == IGNORED:
                return IGNORED
            return FLOW if timed else UNTIMED
        if phase == 105 or phase == 73:  # i I
            name = self.text_of(event, COL_NAME)
            if name != self.memory_event:
                return RAW
            return MEMORY if timed else UNTIMED
        if phase == 77 or phase == 67:  # M C
            return RAW
        return IGNORED if phase == 0 else UNREAD

    cdef inline int lane_of_category(self, Event* event) noexcept nogil:
        cdef int64_t category = self.text_of(event, COL_CATEGORY)
        if 0 <= category < self.categories:
            return self.lane_of_text[category]
        return HOST

    cdef int keep_row(self, int lane, Event* event) noexcept nogil:
        cdef Rows* rows = &self.rows[lane]
        cdef int k, column, form
        cdef int64_t value
        cdef int64_t* cell
        if rows.count >= rows.room and not grow_rows(rows):
            return 0
        cell = rows.cells + rows.count
        for k in range(rows.columns):
            column = rows.column[k]
            form = INTEGER if column == PLACE else self.form[column]
            if column == PLACE:
                value = self.place_of(event)
                if value < 0:
                    return 0
            elif form == TEXT or form == TOKEN or form == JSON:
                value = self.text_of(event, column)
                if column == COL_COLLECTIVE and value == ABSENT:
                    event.known &= ~(<uint64_t>1 << COL_ARGUMENTS)
                if value == NO_MEMORY:
                    return 0
            else:
                value = self.value_of(event, column)
            cell[0] = value
            cell += rows.room
        cell[0] = self.events
        rows.count += 1
        return 1

    cdef int64_t place_of(self, Event* event) noexcept nogil:
        # the position of the pair of process and thread; NO_MEMORY
        cdef int64_t process = self.text_of(event, COL_PROCESS)
        cdef int64_t thread = self.text_of(event, COL_THREAD)
        cdef int64_t k = self.last_place
        cdef int64_t at
        if process == NO_MEMORY or thread == NO_MEMORY:
            return NO_MEMORY
        if k < self.place_count and self.place[k].process == process:
            if self.place[k].thread == thread:
                return k
        if 2 * self.place_count >= self.place_slots and not self.grow_places():
            return NO_MEMORY
        at = self.place_hash(process, thread)
        while self.place_slot[at]:
            k = self.place_slot[at] - 1
            if self.place[k].process == process and self.place[k].thread == thread:
                self.last_place = k
                return k
            at = (at + 1) & (self.place_slots - 1)
        k = self.place_count
        self.place_count += 1
        self.place[k].process = process
        self.place[k].thread = thread
        self.place_slot[at] = k + 1
        self.last_place = k
        return k

    cdef inline int64_t place_hash(self, int64_t process, int64_t thread) noexcept nogil:
        cdef uint64_t h = self.pool.seed ^ (<uint64_t>process << 32) ^ <uint64_t>thread
        return <int64_t>(mixed(mixed(h)) >> 20 & <uint64_t>(self.place_slots - 1))

    cdef int grow_places(self) noexcept nogil:
        cdef int64_t slots = 2 * self.place_slots if self.place_slots else 256
        cdef int64_t k, at
        cdef Place* place = <Place*>realloc(self.place, slots * sizeof(Place))
        if place == NULL:
            return 0
        self.place = place
        cdef int64_t* slot = <int64_t*>realloc(self.place_slot, slots * 8)
        if slot == NULL:
            return 0
        self.place_slot = slot
        self.place_slots = slots
        for at in range(slots):
            slot[at] = 0
        for k in range(self.place_count):
            at = self.place_hash(place[k].process, place[k].thread)
            while slot[at]:
                at = (at + 1) & (slots - 1)
            slot[at] = k + 1
        return 1

    cdef int keep_text(self, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
        cdef Span* spans
        if self.span_count >= self.span_room:
            spans = <Span*>realloc(self.spans, (2 * self.span_room + 64) * sizeof(Span))
            if spans == NULL:
                return 0
            self.spans = spans
            self.span_room = 2 * self.span_room + 64
        self.spans[self.span_count].event = self.events
        self.spans[self.span_count].begin = begin
        self.spans[self.span_count].end = end
        self.span_count += 1
        return 1


cdef int grow_rows(Rows* rows) noexcept nogil:
    cdef int64_t room = 2 * rows.room + 1024
    cdef int64_t* cells = <int64_t*>malloc((rows.columns + 1) * room * 8)
    cdef int k
    if cells == NULL:
        return 0
    for k in range(rows.columns + 1):
        if rows.count:
            memcpy(cells + k * room, rows.cells + k * rows.room, rows.count * 8)
    free(rows.cells)
    rows.cells = cells
    rows.room = room
    return 1


cdef narrowed(const int64_t* cells, int64_t count):
    # a copy in 32 bits where the values fit; NULL becomes the least number of the type
    cdef int64_t low = 0, high = 0, k
    cdef bint constant = True
    cdef int32_t[::1] small
    cdef int64_t[::1] wide
    with nogil:
        for k in range(count):
            constant &= cells[k] == cells[0]
            if cells[k] != NULL_VALUE:
                low = cells[k] if cells[k] < low else low
                high = cells[k] if cells[k] > high else high
    if count and constant and low > INT32_MIN and high <= INT32_MAX:
        value = INT32_MIN if cells[0] == NULL_VALUE else <int32_t>cells[0]
        return np.broadcast_to(np.int32(value), (count,))
    if low > INT32_MIN and high <= INT32_MAX:
        out = np.empty(count, np.int32)
        if count:
            small = out
            with nogil:
                for k in range(count):
                    small[k] = INT32_MIN if cells[k] == NULL_VALUE else <int32_t>cells[k]
        return out
    out = np.empty(count, np.int64)
    wide = out
    memcpy(&wide[0], cells, count * 8)
    return out
