# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, overflowcheck=False
"""The native scanner: text of events to columns, without the interpreter lock.

It reads what ``lenient.py`` defines, and nothing else; tests compare the two on every trace we
have and on broken ones. Which keys, columns and lanes there are comes from ``fields.py``.
"""

import os

import numpy as np

from pinchpoint.importers.kineto.reading import fields
from pinchpoint.importers.kineto.reading.lenient import Status
from pinchpoint.importers.kineto.reading.scan import Chunk

from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from pinchpoint.importers.kineto.native._habit cimport HABITS, STEPS, Habit, Step
from pinchpoint.importers.kineto.native._habit cimport follows, habit_of, learn
from pinchpoint.importers.kineto.native._keys cimport LONGEST_KEY, Key, Keys, find_key, first_bytes
from pinchpoint.importers.kineto.native._pool cimport NO_MEMORY, Pool, Text, empty
from pinchpoint.importers.kineto.native._pool cimport grow_table, intern, is_text
from pinchpoint.importers.kineto.native._rows cimport MOST_COLUMNS, Places, Rows, Spans
from pinchpoint.importers.kineto.native._rows cimport add_span, grow_rows, place_of
from pinchpoint.importers.kineto.native._text cimport Bytes, number, plain_number, skip_blanks
from pinchpoint.importers.kineto.native._text cimport skip_separators, string_end, value_end

cdef enum:
    MOST_LANES = 16
    MOST_LINKED = 4096
    LINK_KEY_BYTES = 16
    PLACE = -1  # stands for the column of places

cdef int MORE = Status.MORE
cdef int DONE = Status.DONE
cdef int BAD = Status.BAD
cdef int LONG = Status.LONG
cdef int64_t NULL_VALUE = fields.NULL
cdef int64_t ABSENT = fields.ABSENT
cdef int THOUSANDTHS = fields.Form.THOUSANDTHS
cdef int TEXT = fields.Form.TEXT
cdef int TOKEN = fields.Form.TOKEN
cdef int JSON = fields.Form.JSON
cdef int PHASE = fields.Form.PHASE
cdef int ADDRESS = fields.Form.ADDRESS
cdef int LINK = fields.Form.LINK
cdef int HOST = fields.Lane.HOST
cdef int FLOW = fields.Lane.FLOW
cdef int MEMORY = fields.Lane.MEMORY
cdef int PAIR = fields.Lane.PAIR
cdef int COUNTER = fields.Lane.COUNTER
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
cdef int COL_LINK = fields.COLUMNS.index("link")
cdef int COL_ARGUMENTS = fields.COLUMNS.index(fields.ARGUMENTS)
cdef uint64_t BIT_OF_LINK = <uint64_t>1 << COL_LINK
cdef uint64_t BIT_OF_ARGUMENTS = <uint64_t>1 << COL_ARGUMENTS
cdef uint64_t ARGUMENTS_UNKNOWN = (1 << len(fields.EVENT_KEYS)) - 1


cdef struct Event:
    # values of numeric columns; begin and end of textual ones; a bit for each column it has
    uint64_t known
    int64_t value[MOST_COLUMNS]
    Bytes begin[MOST_COLUMNS]
    Bytes end[MOST_COLUMNS]


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


cdef class NativeScanner:
    """Scans in C; see :class:`pinchpoint.importers.kineto.reading.scan.Scanner`."""

    cdef Keys event_keys
    cdef Keys argument_keys
    cdef Habit* habits
    cdef Pool pool
    cdef Pool labels
    cdef int64_t* repeat  # of each label: the event of this chunk that gave it last, or -1
    cdef int64_t repeats
    cdef bint keeps_arguments
    cdef uint8_t without[MOST_LINKED]
    cdef Rows rows[MOST_LANES]
    cdef int lane_of_text[MOST_COLUMNS]
    cdef int categories
    cdef int64_t memory_event
    cdef int64_t window_end
    cdef int form[MOST_COLUMNS]
    cdef bint is_interned[MOST_COLUMNS]
    cdef int64_t recent[MOST_COLUMNS]
    cdef int columns
    cdef int64_t events
    cdef int64_t lanes[MOST_LANES]
    cdef Places place
    cdef Spans spans
    cdef int64_t[::1] wanted  # positions in the file of events whose text is asked for
    cdef int64_t next_wanted
    cdef int64_t events_before  # in chunks that were flushed
    cdef list raw

    def __cinit__(self, wanted=(), *, bint keeps_arguments=False):
        cdef int lane, k
        cdef bytes text
        self.raw = []
        self.wanted = np.array(sorted(set(wanted)), np.int64)
        self.pool.seed = int.from_bytes(os.urandom(8), "little")
        self.habits = <Habit*>calloc(HABITS, sizeof(Habit))
        self.keeps_arguments = keeps_arguments
        self.labels.seed = self.pool.seed
        if self.habits == NULL or not grow_table(&self.pool) or not grow_table(&self.labels):
            raise MemoryError
        fill_keys(&self.event_keys, fields.EVENT_KEYS)
        fill_keys(&self.argument_keys, fields.ARGUMENT_KEYS)
        self.columns = len(fields.COLUMNS)
        for k in range(self.columns):
            self.form[k] = fields.FORMS[k]
            self.is_interned[k] = fields.FORMS[k] in fields.INTERNED
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
        self.window_end = intern(&self.pool, fields.WINDOW_END, len(fields.WINDOW_END))

    def __dealloc__(self):
        cdef int lane
        empty(&self.pool)
        empty(&self.labels)
        free(self.repeat)
        free(self.habits)
        free(self.spans.span)
        free(self.place.place)
        free(self.place.slot)
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
        texts = dict(enumerate(self.texts()))
        return [
            (texts.get(self.place.place[k].process), texts.get(self.place.place[k].thread))
            for k in range(self.place.count)
        ]

    def scan(self, const uint8_t[::1] text, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t limit):
        """See :class:`pinchpoint.importers.kineto.reading.scan.Scanner`."""
        cdef Bytes begin = &text[0]
        cdef Py_ssize_t position = at
        cdef int status
        cdef int64_t k
        cdef const char* raw
        cdef Py_ssize_t size
        if at >= stop:
            return Status.MORE, at
        with nogil:
            status = self.run(begin, &position, stop, limit)
        if status < 0:
            raise MemoryError
        for k in range(self.spans.count):
            raw = <const char*>begin + self.spans.span[k].begin
            size = self.spans.span[k].end - self.spans.span[k].begin
            self.raw.append((self.spans.span[k].event, raw[:size]))
        self.spans.count = 0
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
        self.take_repeats()
        chunk = Chunk(
            lanes, self.events, self.raw, untimed=self.lanes[UNTIMED], unread=self.lanes[UNREAD]
        )
        self.raw = []
        self.events_before += self.events
        self.events = 0
        for lane in range(MOST_LANES):
            self.lanes[lane] = 0
        return chunk

    cdef take_repeats(self):
        cdef int64_t k
        cdef Text* text
        cdef const char* begin
        for k in range(min(self.repeats, self.labels.count)):
            if self.repeat[k] < 0:
                continue
            text = &self.labels.text[k]
            begin = <const char*>self.labels.data + text.offset
            self.raw.append((self.repeat[k], begin[: text.length]))
            self.repeat[k] = -1
        self.raw.sort()

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
            if self.is_wanted() or (lane == RAW and self.is_news(&event, p, q)):
                if not add_span(&self.spans, self.events, p - text, q - text):
                    return -1
            if lane < RAW and not self.keep_row(lane, &event):
                return -1
            self.events += 1
            p = q

    cdef inline bint is_news(self, Event* event, Bytes p, Bytes q) noexcept nogil:
        # labels of processes and threads say the same again and again; the last one is kept
        cdef int64_t before = self.labels.count
        cdef int64_t label
        if event.value[COL_PHASE] != 77:  # M
            return True
        label = intern(&self.labels, p, q - p)
        if label == before or label == NO_MEMORY or not self.grow_repeats():
            return True
        self.repeat[label] = self.events
        return False

    cdef inline bint grow_repeats(self) noexcept nogil:
        cdef int64_t k
        cdef int64_t* repeat
        if self.repeats == self.labels.room:
            return True
        repeat = <int64_t*>realloc(self.repeat, self.labels.room * 8)
        if repeat == NULL:
            return False
        for k in range(self.repeats, self.labels.room):
            repeat[k] = -1
        self.repeat = repeat
        self.repeats = self.labels.room
        return True

    cdef inline bint is_wanted(self) noexcept nogil:
        if self.next_wanted == self.wanted.shape[0]:
            return False
        if self.wanted[self.next_wanted] != self.events_before + self.events:
            return False
        self.next_wanted += 1
        return True

    cdef Bytes read(self, Bytes start, Bytes e, Event* event) noexcept nogil:
        # the end of the event at start; NULL if it is incomplete, start if it is malformed
        cdef Bytes p = start + 1
        cdef Bytes begin
        cdef Bytes name
        cdef Bytes q
        cdef Bytes arguments = NULL
        cdef int64_t n
        cdef Key* key
        cdef Keys* keys
        cdef Habit* habit = &self.habits[0]
        cdef Step* step
        cdef int steps = 0
        event.known = 0
        while True:
            step = &habit.step[steps % STEPS]
            steps += 1
            if follows(step, p, e, arguments != NULL):
                p += step.length
                if step.opens:
                    arguments = p - 1
                    event.known &= ARGUMENTS_UNKNOWN
                    continue
                key = step.key
            else:
                begin = p
                p = skip_separators(p, e)
                if p >= e:
                    return NULL
                if p[0] == c"}":
                    p += 1
                    if arguments == NULL:
                        return p
                    event.begin[COL_ARGUMENTS] = arguments
                    event.end[COL_ARGUMENTS] = p
                    event.known |= BIT_OF_ARGUMENTS
                    arguments = NULL
                    continue
                if p[0] != c'"':
                    return start
                name = p + 1
                q = string_end(name, e)
                if q == NULL:
                    return NULL
                n = q - name
                p = skip_blanks(q + 1, e)
                if p >= e:
                    return NULL
                if p[0] != c":":
                    return start
                p = skip_blanks(p + 1, e)
                if p >= e:
                    return NULL
                if arguments == NULL and n == 4 and memcmp(name, b"args", 4) == 0:
                    step.length = 0
                    if p[0] == c"{":
                        arguments = p
                        event.known &= ARGUMENTS_UNKNOWN
                        p += 1
                        learn(step, begin, p - begin, NULL, False, True)
                        continue
                    key = NULL
                else:
                    keys = &self.event_keys if arguments == NULL else &self.argument_keys
                    key = find_key(keys, name, n, e)
                    learn(step, begin, p - begin, key, arguments != NULL, False)
            if key == NULL:
                if value_end(p, e, &p) == NULL:
                    return NULL
                continue
            event.known |= <uint64_t>1 << key.column
            if key.form <= THOUSANDTHS and plain_number(
                p, e, key.shift, &event.value[key.column], &p
            ):
                continue
            begin = p
            q = value_end(p, e, &p)
            if q == NULL:
                return NULL
            self.take_value(event, key, begin, q)
            if key.column == COL_CATEGORY:
                habit = &self.habits[habit_of(begin, q)]

    cdef inline void take_value(self, Event* event, Key* key, Bytes p, Bytes e) noexcept nogil:
        cdef int column = key.column
        if self.is_interned[column]:
            event.begin[column] = p
            event.end[column] = e
        elif key.form == PHASE:
            event.value[column] = p[1] if e - p == 3 and p[0] == c'"' else 0
        elif key.form == LINK:
            event.begin[column] = p
            event.end[column] = e
            event.value[column] = plain_link(p, e)
        else:
            event.value[column] = number(p, e, key.shift, key.form == ADDRESS, NULL_VALUE)

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
            if name == self.window_end:
                return RAW
            if name != self.memory_event:
                return IGNORED
            return MEMORY if timed else UNTIMED
        if phase == 67:  # C
            return COUNTER
        if phase == 77:  # M
            return RAW
        if phase == 66 or phase == 69:  # B E
            return PAIR if timed else UNTIMED
        return IGNORED if phase == 0 else UNREAD

    cdef inline int lane_of_category(self, Event* event) noexcept nogil:
        cdef int64_t category = self.text_of(event, COL_CATEGORY)
        if 0 <= category < self.categories:
            return self.lane_of_text[category]
        return HOST

    cdef bint keep_row(self, int lane, Event* event) noexcept nogil:
        # False if memory ran out
        cdef Rows* rows = &self.rows[lane]
        cdef bint memory = True
        cdef int k, column
        cdef int64_t value
        cdef int64_t* cell
        if rows.count >= rows.room and not grow_rows(rows):
            return False
        if lane == HOST:
            self.keep_said(event)
        cell = rows.cells + rows.count
        for k in range(rows.columns):
            column = rows.column[k]
            if column == PLACE:
                value = self.place_of(event)
                memory &= value != NO_MEMORY
            elif self.is_interned[column]:
                value = self.text_of(event, column)
                memory &= value != NO_MEMORY
                if column == COL_COLLECTIVE and value == ABSENT:
                    event.known &= ~BIT_OF_ARGUMENTS
            else:
                value = self.value_of(event, column)
            cell[0] = value
            cell += rows.room
        cell[0] = self.events
        rows.count += 1
        return memory

    cdef inline void keep_said(self, Event* event) noexcept nogil:
        # the arguments of events without a category, with NO_LINK where they have a link
        cdef uint64_t known = event.known
        if not self.keeps_arguments or self.text_of(event, COL_CATEGORY) != ABSENT:
            event.known &= ~(BIT_OF_ARGUMENTS | BIT_OF_LINK)
            return
        if not known & BIT_OF_LINK:
            return
        if not known & BIT_OF_ARGUMENTS or not self.cut_link(event):
            event.known &= ~BIT_OF_LINK

    cdef inline bint cut_link(self, Event* event) noexcept nogil:
        # False where the link is no plain number, or its key stands there twice
        cdef Bytes p = event.begin[COL_ARGUMENTS]
        cdef Bytes e = event.end[COL_ARGUMENTS]
        cdef Bytes at = p
        cdef Py_ssize_t head = event.begin[COL_LINK] - p
        cdef Py_ssize_t tail = e - event.end[COL_LINK]
        cdef int keys = 0
        if event.value[COL_LINK] == NULL_VALUE or e - p > MOST_LINKED:
            return False
        while e - at >= LINK_KEY_BYTES:
            if at[0] == c'"' and memcmp(at, b'"correlation_id"', LINK_KEY_BYTES) == 0:
                keys += 1
            at += 1
        if keys != 1:
            return False
        memcpy(self.without, p, head)
        self.without[head] = c"0"
        memcpy(self.without + head + 1, event.end[COL_LINK], tail)
        event.begin[COL_ARGUMENTS] = self.without
        event.end[COL_ARGUMENTS] = self.without + head + 1 + tail
        return True

    cdef inline int64_t place_of(self, Event* event) noexcept nogil:
        cdef int64_t process = self.text_of(event, COL_PROCESS)
        cdef int64_t thread = self.text_of(event, COL_THREAD)
        if process == NO_MEMORY or thread == NO_MEMORY:
            return NO_MEMORY
        return place_of(&self.place, process, thread)

cdef inline int64_t plain_link(Bytes p, Bytes e) noexcept nogil:
    # a number of up to 18 digits, in quotes or not; NULL_VALUE
    cdef int64_t value = 0
    if e - p > 2 and p[0] == c'"':
        p += 1
        e -= 1
    if e - p < 1 or e - p > 18 or (p[0] == c"0" and e - p > 1):
        return NULL_VALUE
    while p < e:
        if p[0] < c"0" or p[0] > c"9":
            return NULL_VALUE
        value = 10 * value + p[0] - c"0"
        p += 1
    return value


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
