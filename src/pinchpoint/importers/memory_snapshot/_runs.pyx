# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The compiled form of what ``dict_pattern.py`` matches; tests hold the two together."""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    SLOTS = 1 << 15  # of the table of distinct values; at most half are taken
    SHORT = 32  # the longest text that an event may hold, as in dict_pattern.py
    LISTS = 1 << 13  # of the last lists, by how they begin

cdef struct Place:
    Py_ssize_t at
    Py_ssize_t size
    int64_t refers_to  # a position in the memo; -1 for anything but a reference
    bint named


cdef struct Text:
    const uint8_t* bytes
    Py_ssize_t end
    int64_t settled  # references to the memo below this can be looked up


cdef inline Py_ssize_t reference(Text* text, Py_ssize_t at, int64_t* position) noexcept nogil:
    """Where a reference at ``at`` ends, and to what it refers; -1 if there is none."""
    cdef uint8_t code
    if at + 5 > text.end:
        return -1
    code = text.bytes[at]
    if code == 0x68:  # BINGET
        position[0] = text.bytes[at + 1]
        return at + 2
    if code == 0x6A:  # LONG_BINGET
        position[0] = (
            text.bytes[at + 1]
            | <int64_t>text.bytes[at + 2] << 8
            | <int64_t>text.bytes[at + 3] << 16
            | <int64_t>text.bytes[at + 4] << 24
        )
        return at + 5
    return -1


cdef inline Py_ssize_t number(Text* text, Py_ssize_t at, int64_t* value) noexcept nogil:
    """Where an integer of at most 8 bytes ends, and its value; -1 if there is none."""
    cdef uint8_t code, size, i
    cdef uint64_t found = 0
    if at + 10 > text.end:
        return -1
    code = text.bytes[at]
    at += 1
    if code == 0x8A:  # LONG1
        size = text.bytes[at]
        at += 1
        if not 1 <= size <= 8:
            return -1
    elif code == 0x4A:  # BININT
        size = 4
    elif code == 0x4B:  # BININT1
        value[0] = text.bytes[at]
        return at + 1
    elif code == 0x4D:  # BININT2
        value[0] = text.bytes[at] | <int64_t>text.bytes[at + 1] << 8
        return at + 2
    else:
        return -1
    for i in range(size):
        found |= <uint64_t>text.bytes[at + i] << (8 * i)
    if size < 8 and text.bytes[at + size - 1] & 0x80:
        found |= ~<uint64_t>0 << (8 * size)
    value[0] = <int64_t>found
    return at + size


cdef inline Py_ssize_t other(Text* text, Py_ssize_t at, bint* named) noexcept nogil:
    """Where a text, a list of references or a constant ends; -1 for anything else."""
    cdef uint8_t code
    cdef int64_t position = 0
    cdef Py_ssize_t after, inside
    if at + SHORT + 4 > text.end:
        return -1
    code = text.bytes[at]
    named[0] = False
    if code == 0x4E or code == 0x88 or code == 0x89:  # NONE, NEWTRUE, NEWFALSE
        return at + 1
    if code == 0x8C:  # SHORT_BINUNICODE
        if text.bytes[at + 1] > SHORT:
            return -1
        at += 2 + text.bytes[at + 1]
    elif code == 0x5D:  # EMPTY_LIST
        at += 1
    else:
        return -1
    if text.bytes[at] == 0x94:  # MEMOIZE
        named[0] = True
        at += 1
    if code != 0x5D:
        return at
    if text.bytes[at] == 0x28:  # MARK
        inside = at + 1
        while True:
            after = reference(text, inside, &position)
            if after < 0:
                break
            if position >= text.settled:
                return -1
            inside = after
        if inside == at + 1 or inside >= text.end or text.bytes[inside] != 0x65:  # APPENDS
            return -1
        return inside + 1
    after = reference(text, at, &position)
    if after >= 0 and after < text.end and text.bytes[after] == 0x61:  # APPEND
        return after + 1 if position < text.settled else -1
    return at


cdef inline Py_ssize_t beginning(Text* text, Py_ssize_t at) noexcept nogil:
    """Where a list is remembered: by its first references; -1 for what is no long list."""
    cdef uint64_t part[4]
    cdef uint64_t hashed
    if at + SHORT + 4 > text.end or text.bytes[at] != 0x5D:
        return -1
    memcpy(part, text.bytes + at + 3, SHORT)
    hashed = part[0] * <uint64_t>0x9E3779B97F4A7C15 ^ part[1] * <uint64_t>0xC2B2AE3D27D4EB4F
    hashed += part[2] * <uint64_t>0x165667B19E3779F9 ^ part[3] * <uint64_t>0x27D4EB2F165667C5
    return <Py_ssize_t>((hashed ^ hashed >> 32) & (LISTS - 1))


cdef inline Py_ssize_t next_one(Text* text, Py_ssize_t at) noexcept nogil:
    """Past what may stand between dictionaries of a list: a new frame, the next thousand."""
    if at + 12 > text.end:
        return at
    if text.bytes[at] == 0x95 and text.bytes[at + 9] == 0x7D:  # FRAME
        return at + 9
    if text.bytes[at] == 0x65 and text.bytes[at + 1] == 0x28 and text.bytes[at + 2] == 0x7D:
        return at + 2  # APPENDS, MARK
    return at


cdef class Runs:
    """Reads runs of dictionaries with the same keys; ``read`` says what it returns."""

    cdef int64_t[:, ::1] keys
    cdef int64_t[:, ::1] value
    cdef uint8_t[:, ::1] is_thing
    cdef int32_t[::1] named
    cdef int32_t[::1] slot
    cdef int32_t[::1] usual  # for each key the row of its last value that says where it ends
    cdef Place[SLOTS] place
    cdef int32_t[LISTS] last  # the row of a list that begins like this
    cdef int things
    cdef object value_out, is_thing_out, named_out

    def __init__(self, keys, most):
        """``keys``: for each key its positions in the memo, -1 where there is none."""
        self.keys = keys
        self.value_out = np.empty((len(keys), most), np.int64)
        self.is_thing_out = np.empty((len(keys), most), np.uint8)
        self.named_out = np.empty(most * (len(keys) + 1), np.int32)
        self.value, self.is_thing, self.named = self.value_out, self.is_thing_out, self.named_out
        self.slot = np.empty(SLOTS, np.int32)
        self.usual = np.empty(len(keys), np.int32)

    def read(self, bytes buffer, Py_ssize_t position, Py_ssize_t limit, int64_t settled):
        """The dictionaries from ``position`` on, as far as they can be read here.

        Their values by key, each a number or, where the second array says so, a row of the third,
        which has each distinct other value: the position in the memo that it refers to, or its
        text; then what each new name in the memo stands for: a row of it, or -1 for a dictionary.
        Last, where the dictionaries end.
        """
        cdef Text text
        cdef Py_ssize_t row = 0, at = position, after, most = self.value.shape[1]
        cdef int64_t names = 0
        text.bytes, text.end, text.settled = buffer, len(buffer), settled
        self.things = 0
        memset(&self.slot[0], 0xFF, SLOTS * sizeof(int32_t))
        memset(self.last, 0xFF, LISTS * sizeof(int32_t))
        self.usual[:] = -1
        with nogil:
            while row < most and at <= limit and self.things < SLOTS // 2 - self.keys.shape[0]:
                after = self.one(&text, at, row, &names)
                if after < 0:
                    break
                at = next_one(&text, after)
                row += 1
        parts = [
            self.place[i].refers_to if self.place[i].refers_to >= 0
            else buffer[self.place[i].at : self.place[i].at + self.place[i].size]
            for i in range(self.things)
        ]
        return (
            self.value_out[:, :row], self.is_thing_out[:, :row], parts,
            self.named_out[:names], at,
        )

    cdef Py_ssize_t one(
        self, Text* text, Py_ssize_t at, Py_ssize_t row, int64_t* names
    ) noexcept nogil:
        """Where the dictionary at ``at`` ends; -1, and nothing changed, if it is not like this."""
        cdef Py_ssize_t key, after, keys = self.keys.shape[0]
        cdef int64_t position = 0, made = names[0]
        cdef bint named = False
        if at + 4 > text.end or text.bytes[at] != 0x7D:  # EMPTY_DICT
            return -1
        at += 1
        if text.bytes[at] == 0x94:  # MEMOIZE
            self.named[made] = -1
            made += 1
            at += 1
        if text.bytes[at] != 0x28:  # MARK
            return -1
        at += 1
        for key in range(keys):
            at = reference(text, at, &position)
            if at < 0 or not self.is_key(key, position):
                return -1
            after = self.same(text, at, self.usual[key])
            if after >= 0:
                self.value[key, row], self.is_thing[key, row] = self.usual[key], True
                if self.place[self.usual[key]].named:
                    self.named[made] = self.usual[key]
                    made += 1
                at = after
                continue
            after = number(text, at, &self.value[key, row])
            self.is_thing[key, row] = after < 0
            if after < 0:
                after = reference(text, at, &position)
                if after >= 0 and position >= text.settled:
                    position -= text.settled
                    if position >= made or self.named[position] < 0:
                        return -1
                    self.value[key, row] = self.named[position]
                else:
                    named = False
                    if after >= 0:
                        self.value[key, row] = self.thing(text, at, after - at, position)
                        self.usual[key] = <int32_t>self.value[key, row]
                    else:
                        after = self.unnumbered(text, at, &self.value[key, row], &named)
                        if after < 0:
                            return -1
                    if named:
                        self.named[made] = <int32_t>self.value[key, row]
                        made += 1
                        if text.bytes[at] == 0x8C:  # with a name a text ends; a list may go on
                            self.usual[key] = <int32_t>self.value[key, row]
            at = after
        if at >= text.end or text.bytes[at] != 0x75:  # SETITEMS
            return -1
        names[0] = made
        return at + 1

    cdef Py_ssize_t unnumbered(
        self, Text* text, Py_ssize_t at, int64_t* row, bint* named
    ) noexcept nogil:
        """Where what ``other`` reads ends, and its row; a list that came before is not read again.

        Its last opcode is within what is compared, so no longer list begins with a shorter one.
        """
        cdef Py_ssize_t after, spot = beginning(text, at)
        if spot >= 0:
            after = self.same(text, at, self.last[spot])
            if after >= 0:
                row[0] = self.last[spot]
                named[0] = self.place[row[0]].named
                return after
        after = other(text, at, named)
        if after < 0:
            return -1
        row[0] = self.thing(text, at, after - at, -1)
        self.place[row[0]].named = named[0]
        if spot >= 0 and after - at > 2:  # not the empty one, with which others begin
            self.last[spot] = <int32_t>row[0]
        return after

    cdef inline Py_ssize_t same(self, Text* text, Py_ssize_t at, int32_t row) noexcept nogil:
        """Where the value of a row ends, if it stands here too; else -1."""
        cdef Place* known
        if row < 0:
            return -1
        known = &self.place[row]
        if at + known.size > text.end or text.bytes[at] != text.bytes[known.at]:
            return -1
        if memcmp(text.bytes + known.at, text.bytes + at, known.size):
            return -1
        return at + known.size

    cdef bint is_key(self, Py_ssize_t key, int64_t position) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.keys.shape[1]):
            if self.keys[key, i] == position:
                return True
        return False

    cdef int32_t thing(
        self, Text* text, Py_ssize_t at, Py_ssize_t size, int64_t refers_to
    ) noexcept nogil:
        """The row of a value that is no number."""
        cdef uint64_t hashed = <uint64_t>size, part
        cdef Py_ssize_t i = 0, slot
        cdef int32_t row
        while i < size:
            part = 0
            if size - i >= 8:
                memcpy(&part, text.bytes + at + i, 8)  # of a known size: no call
            else:
                memcpy(&part, text.bytes + at + i, size - i)
            hashed = (hashed ^ part) * <uint64_t>0x9E3779B97F4A7C15
            hashed ^= hashed >> 29
            i += 8
        slot = <Py_ssize_t>(hashed & (SLOTS - 1))
        while True:
            row = self.slot[slot]
            if row < 0:
                row = self.things
                self.slot[slot] = row
                self.place[row].at = at
                self.place[row].size = size
                self.place[row].refers_to = refers_to
                self.place[row].named = False
                self.things += 1
                return row
            if self.place[row].size == size and not memcmp(
                text.bytes + self.place[row].at, text.bytes + at, size
            ):
                return row
            slot = (slot + 1) & (SLOTS - 1)
