# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, overflowcheck=False
"""The native scanner: text of events to columns, without the interpreter lock.

It reads what ``lenient.py`` defines, and nothing else; tests compare the two on every trace we
have and on broken ones. Which keys, columns and lanes there are comes from ``fields.py``.
"""

from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

import os

import numpy as np

from pinchpoint.importers.kineto import fields
from pinchpoint.importers.kineto.lenient import Status
from pinchpoint.importers.kineto.nesting import MOST_CROSSED, NONE, TOLERANCE_NS
from pinchpoint.importers.kineto.scan import Chunk

cdef enum:
    MOST_COLUMNS = 64
    MOST_LANES = 16
    PLACE = -1  # stands for the column of places
    LONGEST_KEY = 64
    MORE = 0
    DONE = 1
    BAD = 2
    LONG = 3
    QUOTE = 34
    COMMA = 44
    COLON = 58
    OPEN_LIST = 91
    BACKSLASH = 92
    CLOSE_LIST = 93
    OPEN_OBJECT = 123
    CLOSE_OBJECT = 125

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

cdef uint64_t[20] POWERS
POWERS[0] = 1
cdef int _i
for _i in range(1, 20):
    POWERS[_i] = POWERS[_i - 1] * 10

ctypedef const uint8_t* Bytes


cdef struct Key:
    int length
    int column
    int form
    uint64_t head
    uint8_t text[LONGEST_KEY]


cdef struct Keys:
    # keys of one kind, grouped by length
    Key key[MOST_COLUMNS]
    int first[LONGEST_KEY + 1]
    int after[LONGEST_KEY + 1]


cdef struct Pool:
    # interned texts; a slot holds the position of a text plus one
    uint64_t seed
    int64_t count
    int64_t room
    int64_t slots
    int64_t* slot
    uint64_t* hashes
    int64_t* offset
    int64_t* length
    uint8_t* data
    int64_t used
    int64_t size


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


# ---------------------------------------------------------------- text

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    typedef const uint8_t *pp_bytes;

    #if defined(__SSE2__) || defined(_M_X64)
    #include <emmintrin.h>
    #define PP_WIDE 16
    typedef __m128i pp_block;
    #define PP_LOAD(p) _mm_loadu_si128((const __m128i *)(p))
    #define PP_IS(block, c) _mm_cmpeq_epi8(block, _mm_set1_epi8(c))
    #define PP_OR(a, b) _mm_or_si128(a, b)
    #define PP_FOLD(block) _mm_or_si128(block, _mm_set1_epi8(32))
    #define PP_ABOVE_BLANK(block) PP_IS(_mm_subs_epu8(block, _mm_set1_epi8(32)), 0)
    #define PP_MASK(hits) ((unsigned)_mm_movemask_epi8(hits))
    #define PP_ALL 0xFFFFu
    #define PP_INVERT_BLANKS(hits) (PP_MASK(hits) ^ PP_ALL)
    #endif

    #if defined(_MSC_VER)
    #include <intrin.h>
    static __inline int pp_first(unsigned mask) {
        unsigned long at; _BitScanForward(&at, mask); return (int)at;
    }
    #else
    #define pp_first(mask) __builtin_ctz(mask)
    #endif

    static inline uint64_t pp_word(pp_bytes p) { uint64_t w; memcpy(&w, p, 8); return w; }

    /* p is after the opening quote; the closing quote, or NULL. */
    static inline pp_bytes pp_string_end(pp_bytes p, pp_bytes e) {
        for (;;) {
    #ifdef PP_WIDE
            while (e - p >= PP_WIDE) {
                pp_block block = PP_LOAD(p);
                unsigned hits = PP_MASK(PP_OR(PP_IS(block, 34), PP_IS(block, 92)));
                if (!hits) { p += PP_WIDE; continue; }
                p += pp_first(hits);
                if (*p == 34) return p;
                p += 2;
            }
    #endif
            while (p < e && *p != 34 && *p != 92) p++;
            if (p >= e) return NULL;
            if (*p == 34) return p;
            p += 2;
        }
    }

    /* The first position that is no blank (a byte up to 32). */
    static inline pp_bytes pp_skip_blanks(pp_bytes p, pp_bytes e) {
        if (p < e && *p > 32) return p;
    #ifdef PP_WIDE
        while (e - p >= PP_WIDE) {
            unsigned hits = PP_INVERT_BLANKS(PP_ABOVE_BLANK(PP_LOAD(p)));
            if (hits) return p + pp_first(hits);
            p += PP_WIDE;
        }
    #endif
        while (p < e && *p <= 32) p++;
        return p;
    }

    /* p is at an opening bracket; what follows its closing one, or NULL. */
    static inline pp_bytes pp_skip_brackets(pp_bytes p, pp_bytes e) {
        int64_t depth = 0;
        while (p < e) {
            uint8_t c = *p;
            if (c == 34) {
                p = pp_string_end(p + 1, e);
                if (!p) return NULL;
            } else if ((c | 32) == 123) {
                depth++;
            } else if ((c | 32) == 125) {
                if (--depth == 0) return p + 1;
            }
            p++;
    #ifdef PP_WIDE
            while (e - p >= PP_WIDE) {
                pp_block block = PP_LOAD(p), folded = PP_FOLD(block);
                unsigned hits = PP_MASK(
                    PP_OR(PP_IS(block, 34), PP_OR(PP_IS(folded, 123), PP_IS(folded, 125))));
                if (hits) { p += pp_first(hits); break; }
                p += PP_WIDE;
            }
    #endif
        }
        return NULL;
    }
    """
    Bytes string_end "pp_string_end" (Bytes p, Bytes e) noexcept nogil
    Bytes skip_blanks "pp_skip_blanks" (Bytes p, Bytes e) noexcept nogil
    Bytes skip_brackets "pp_skip_brackets" (Bytes p, Bytes e) noexcept nogil
    uint64_t word "pp_word" (Bytes p) noexcept nogil


cdef inline Bytes skip_separators(Bytes p, Bytes e) noexcept nogil:
    while True:
        p = skip_blanks(p, e)
        if p >= e or p[0] != COMMA:
            return p
        p += 1


cdef inline bint ends_scalar(uint8_t c) noexcept nogil:
    return c == COMMA or c == CLOSE_OBJECT or c == CLOSE_LIST or c == 10 or c == 13


cdef inline Bytes value_end(Bytes p, Bytes e, Bytes* after) noexcept nogil:
    # the end of the value at p, and where reading goes on; NULL if it does not end before e
    cdef uint8_t c = p[0]
    cdef Bytes q
    if c == QUOTE:
        q = string_end(p + 1, e)
        if q != NULL:
            q += 1
        after[0] = q
        return q
    if c == OPEN_OBJECT or c == OPEN_LIST:
        q = skip_brackets(p, e)
        after[0] = q
        return q
    q = p
    while q < e and not ends_scalar(q[0]):
        q += 1
    if q >= e:
        return NULL
    after[0] = q
    while q > p and (q - 1)[0] <= 32:
        q -= 1
    return q


# ---------------------------------------------------------------- numbers


cdef inline int scaled(uint64_t kept, int64_t power, uint64_t* out) noexcept nogil:
    cdef uint64_t unit, rest
    if kept == 0 or power < -19:
        out[0] = 0
        return 1
    if power < 0:
        unit = POWERS[-power]
        rest = kept % unit
        out[0] = kept // unit + (1 if rest >= unit // 2 else 0)
        return 1
    if power > 19 or kept > (<uint64_t>-1) // POWERS[power]:
        return 0
    out[0] = kept * POWERS[power]
    return 1


cdef int decimal(Bytes p, Bytes e, int shift, uint64_t* out, int* negative) noexcept nogil:
    # the text from p to e as a number times 10 ** shift; 0 if it is none
    cdef uint64_t kept = 0
    cdef int64_t digits = 0, dropped = 0, decimals = 0, seen = 0, power = 0
    cdef int in_fraction = 0, minus = 0
    cdef uint8_t c
    negative[0] = 0
    if p < e and p[0] == 45:
        negative[0] = 1
        p += 1
    while p < e:
        c = p[0] - 48
        if c <= 9:
            seen += 1
            decimals += in_fraction
            if digits or c:
                if digits < 19:
                    kept = kept * 10 + c
                    digits += 1
                else:
                    dropped += 1
        elif p[0] == 46 and not in_fraction:
            in_fraction = 1
        else:
            break
        p += 1
    if seen == 0:
        return 0
    if p < e and (p[0] | 32) == 101:
        p += 1
        if p < e and (p[0] == 45 or p[0] == 43):
            minus = p[0] == 45
            p += 1
        if p >= e:
            return 0
        seen = 0
        while p < e:
            c = p[0] - 48
            if c > 9:
                return 0
            if power < 1000000:
                power = power * 10 + c
            p += 1
        if power > 99999:
            power = 99999
        if minus:
            power = -power
    if p < e:
        return 0
    return scaled(kept, power + shift - decimals + dropped, out)


cdef inline int64_t number(Bytes p, Bytes e, int form) noexcept nogil:
    cdef uint64_t magnitude = 0
    cdef int negative = 0
    cdef int shift = 3 if form == NANOSECONDS or form == THOUSANDTHS else 0
    if p < e and p[0] == QUOTE:
        p += 1
        e -= 1
    if not decimal(p, e, shift, &magnitude, &negative):
        return NULL_VALUE
    if form == ADDRESS:
        return <int64_t>(0 - magnitude if negative else magnitude)
    if magnitude > 0x7FFFFFFFFFFFFFFFULL:
        return NULL_VALUE
    return -<int64_t>magnitude if negative else <int64_t>magnitude


cdef inline bint plain_number(
    Bytes p, Bytes e, int form, int64_t* out, Bytes* after
) noexcept nogil:
    # the usual spelling: up to 15 digits, up to 3 decimals, and then the end of the value
    cdef Bytes begin = p
    cdef uint64_t value = 0
    cdef int places
    while p < e and <uint8_t>(p[0] - 48) <= 9:
        value = value * 10 + <uint8_t>(p[0] - 48)
        p += 1
    if p == begin or p - begin > 15 or p >= e:
        return False
    if form == NANOSECONDS or form == THOUSANDTHS:
        places = 3
        if p[0] == 46:
            p += 1
            begin = p
            while p < e and places and <uint8_t>(p[0] - 48) <= 9:
                value = value * 10 + <uint8_t>(p[0] - 48)
                places -= 1
                p += 1
            if p >= e:
                return False
        value *= POWERS[places]
    if not ends_scalar(p[0]):
        return False
    out[0] = <int64_t>value
    after[0] = p
    return True


# ---------------------------------------------------------------- interning


cdef inline uint64_t mixed(uint64_t h) noexcept nogil:
    h ^= h >> 32
    h *= 0x9E3779B97F4A7C15ULL
    return h


cdef inline uint64_t hash_of(Bytes p, int64_t n, uint64_t seed) noexcept nogil:
    cdef uint64_t h = seed ^ (<uint64_t>n * 0xD6E8FEB86659FD93ULL)
    cdef uint64_t last = 0
    while n >= 8:
        h = mixed(h ^ word(p))
        p += 8
        n -= 8
    if n:
        memcpy(&last, p, n)
        h = mixed(h ^ last)
    h = mixed(h)
    return h ^ (h >> 29)


cdef int64_t intern(Pool* pool, Bytes p, int64_t n) noexcept nogil:
    # the position of a text; -2 if memory ran out
    cdef uint64_t h = hash_of(p, n, pool.seed)
    cdef int64_t mask = pool.slots - 1
    cdef int64_t at = <int64_t>(h & <uint64_t>mask)
    cdef int64_t k
    while pool.slot[at]:
        k = pool.slot[at] - 1
        if (
            pool.hashes[k] == h
            and pool.length[k] == n
            and memcmp(pool.data + pool.offset[k], p, n) == 0
        ):
            return k
        at = (at + 1) & mask
    if pool.count >= pool.room and not grow_pool(pool):
        return -2
    if pool.used + n > pool.size and not grow_data(pool, n):
        return -2
    k = pool.count
    pool.count += 1
    pool.hashes[k] = h
    pool.length[k] = n
    pool.offset[k] = pool.used
    memcpy(pool.data + pool.used, p, n)
    pool.used += n
    mask = pool.slots - 1
    at = <int64_t>(h & <uint64_t>mask)
    while pool.slot[at]:
        at = (at + 1) & mask
    pool.slot[at] = k + 1
    return k


cdef int grow_data(Pool* pool, int64_t n) noexcept nogil:
    cdef int64_t size = 2 * pool.size + n
    cdef uint8_t* data = <uint8_t*>realloc(pool.data, size)
    if data == NULL:
        return 0
    pool.data = data
    pool.size = size
    return 1


cdef int grow_pool(Pool* pool) noexcept nogil:
    cdef int64_t room = 2 * pool.room if pool.room else 4096
    cdef int64_t slots = 2 * room
    cdef int64_t k, at
    cdef uint64_t* hashes = <uint64_t*>realloc(pool.hashes, room * 8)
    if hashes == NULL:
        return 0
    pool.hashes = hashes
    cdef int64_t* numbers = <int64_t*>realloc(pool.offset, room * 8)
    if numbers == NULL:
        return 0
    pool.offset = numbers
    numbers = <int64_t*>realloc(pool.length, room * 8)
    if numbers == NULL:
        return 0
    pool.length = numbers
    numbers = <int64_t*>realloc(pool.slot, slots * 8)
    if numbers == NULL:
        return 0
    pool.slot = numbers
    pool.room = room
    pool.slots = slots
    for at in range(slots):
        numbers[at] = 0
    for k in range(pool.count):
        at = <int64_t>(hashes[k] & <uint64_t>(slots - 1))
        while numbers[at]:
            at = (at + 1) & (slots - 1)
        numbers[at] = k + 1
    return 1


# ---------------------------------------------------------------- keys


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
        if not grow_pool(&self.pool):
            raise MemoryError
        fill_keys(&self.event_keys, fields.EVENT_KEYS)
        fill_keys(&self.argument_keys, fields.ARGUMENT_KEYS)
        self.columns = len(fields.COLUMNS)
        for k in range(self.columns):
            self.form[k] = fields.FORMS[k]
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
        free(self.pool.slot)
        free(self.pool.hashes)
        free(self.pool.offset)
        free(self.pool.length)
        free(self.pool.data)
        free(self.spans)
        free(self.place)
        free(self.place_slot)
        for lane in range(MOST_LANES):
            free(self.rows[lane].cells)

    def texts(self):
        """The interned texts in order of their positions."""
        cdef int64_t k
        return [
            (<const char*>self.pool.data + self.pool.offset[k])[: self.pool.length[k]]
            for k in range(self.pool.count)
        ]

    def places(self):
        """The interned places in order of their positions."""
        texts = [*self.texts(), None]
        return [
            (texts[self.place[k].process], texts[self.place[k].thread])
            for k in range(self.place_count)
        ]

    def scan(self, bytes text, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t limit):
        """See :class:`pinchpoint.importers.kineto.scan.Scanner`."""
        cdef Bytes begin = text
        cdef Py_ssize_t position = at
        cdef int status
        cdef int64_t k
        with nogil:
            status = self.run(begin, &position, stop, limit)
        if status < 0:
            raise MemoryError
        for k in range(self.span_count):
            raw = text[self.spans[k].begin : self.spans[k].end]
            self.raw.append((self.spans[k].event, raw))
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
            if p[0] == CLOSE_LIST:
                return DONE
            if p[0] != OPEN_OBJECT:
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
            if p[0] == CLOSE_OBJECT:
                p += 1
                if arguments == NULL:
                    return p
                event.begin[COL_ARGUMENTS] = arguments
                event.end[COL_ARGUMENTS] = p
                event.known |= <uint64_t>1 << COL_ARGUMENTS
                arguments = NULL
                keys = &self.event_keys
                continue
            if p[0] != QUOTE:
                return start
            k = p + 1
            q = string_end(k, e)
            if q == NULL:
                return NULL
            n = q - k
            p = skip_blanks(q + 1, e)
            if p >= e:
                return NULL
            if p[0] != COLON:
                return start
            p = skip_blanks(p + 1, e)
            if p >= e:
                return NULL
            if arguments == NULL and p[0] == OPEN_OBJECT and n == 4 and memcmp(k, b"args", 4) == 0:
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
                    p, e, key.form, &event.value[column], &p
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
                    event.value[column] = p[1] if q - p == 3 and p[0] == QUOTE else 0
                else:
                    event.value[column] = number(p, q, key.form)
            p = k

    cdef inline int64_t value_of(self, Event* event, int column) noexcept nogil:
        return event.value[column] if event.known >> column & 1 else NULL_VALUE

    cdef inline int64_t text_of(self, Event* event, int column) noexcept nogil:
        # the interned text of a column, ABSENT if it has none, -2 if memory ran out
        cdef Bytes p = event.begin[column]
        cdef Bytes e = event.end[column]
        cdef int form = self.form[column]
        if not event.known >> column & 1 or p == e:
            return ABSENT
        if p[0] == QUOTE:
            if form != JSON:
                p += 1
                e -= 1
        elif form == TEXT:
            return ABSENT
        elif e - p == 4 and memcmp(p, b"null", 4) == 0:
            return ABSENT
        elif form == TOKEN and (p[0] == OPEN_OBJECT or p[0] == OPEN_LIST):
            return ABSENT
        return intern(&self.pool, p, e - p)

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
                if value == -2:
                    return 0
            else:
                value = self.value_of(event, column)
            cell[0] = value
            cell += rows.room
        cell[0] = self.events
        rows.count += 1
        return 1

    cdef int64_t place_of(self, Event* event) noexcept nogil:
        # the position of the pair of process and thread; -2 if memory ran out
        cdef int64_t process = self.text_of(event, COL_PROCESS)
        cdef int64_t thread = self.text_of(event, COL_THREAD)
        cdef int64_t k = self.last_place
        cdef int64_t at
        if process == -2 or thread == -2:
            return -2
        if k < self.place_count and self.place[k].process == process:
            if self.place[k].thread == thread:
                return k
        if 2 * self.place_count >= self.place_slots and not self.grow_places():
            return -2
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


# ---------------------------------------------------------------- nesting


cdef int64_t TOLERANCE = TOLERANCE_NS
cdef int64_t CROSSED = MOST_CROSSED
cdef int32_t NO_ROW = NONE


def nest(
    const int64_t[::1] start,
    const int64_t[::1] end,
    const int32_t[::1] thread,
    calls,
    Py_ssize_t threads,
):
    """See :func:`pinchpoint.importers.kineto.nesting.nest`."""
    cdef const int64_t[::1] call_start = calls[0]
    cdef const int64_t[::1] call_end = calls[1]
    cdef const int32_t[::1] call_thread = calls[2]
    cdef Py_ssize_t rows = start.shape[0], asked = call_start.shape[0]
    cdef Py_ssize_t row = 0, call, crossed
    cdef int32_t top
    parent_out = np.empty(rows, np.int32)
    enclosing_out = np.empty(asked, np.int32)
    opened_out = np.full(threads, NONE, np.int32)
    cdef int32_t[::1] parent = parent_out
    cdef int32_t[::1] enclosing = enclosing_out
    cdef int32_t[::1] opened = opened_out
    with nogil:
        for call in range(asked + 1):
            while row < rows and (call == asked or start[row] <= call_start[call]):
                top = opened[thread[row]]
                while top != NO_ROW and (
                    end[top] <= start[row] or end[top] + TOLERANCE < end[row]
                ):
                    top = parent[top]
                parent[row] = top
                opened[thread[row]] = <int32_t>row
                row += 1
            if call == asked:
                break
            top = opened[call_thread[call]]
            crossed = 0
            while top != NO_ROW and (
                end[top] <= call_start[call] or end[top] + TOLERANCE < call_end[call]
            ):
                top = parent[top]
                crossed += 1
                if crossed >= CROSSED:
                    top = NO_ROW
            enclosing[call] = top
    return parent_out, enclosing_out
