"""What lies in memory where rows are taken: read from the frame of a thread that runs."""

import dis
import sys
import threading

import pytest

from pinchpoint.capture.samples.operands import LOOKS_FIRST, Operands, Spelling, spelling_of
from pinchpoint.capture.samples.stacks import stack_of

np = pytest.importorskip("numpy", reason="NumPy is not installed")
TABLE = np.asfortranarray(np.zeros((1000, 40), np.float32))
ROWS = np.arange(16)


def by_name(table, rows):
    return table[rows]


def of_an_object(self, rows):
    return self.data.table[rows, :]


def by_take(table, rows):
    return table.take(rows, axis=0)


def of_all(table, rows):
    return table.take(rows)


def of_numbers(table, rows):
    return table[rows, 3]


def computed(table, rows):
    return table[rows + 1]


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (by_name, Spelling(("table",), ("rows",), 0)),
        (of_an_object, Spelling(("self", "data", "table"), ("rows",), 0)),
        (by_take, Spelling(("table",), ("rows",), 0)),
        (of_all, None),
        (of_numbers, None),
        (computed, None),
    ],
)
def test_what_an_instruction_takes_of_what(function, found):
    takes = ("BINARY_SUBSCR", "BINARY_OP", "CALL", "PRECALL", "CALL_KW")
    at = [one.offset for one in dis.get_instructions(function) if one.opname in takes][-1]
    assert spelling_of(function.__code__, at) == found


def test_other_functions_are_not_taken_apart(monkeypatch):
    def never(code):
        raise AssertionError(code)

    monkeypatch.setattr("pinchpoint.capture.samples.operands.instructions", never)
    for at in range(0, len(stack_of.__code__.co_code), 2):
        if dis.opname[stack_of.__code__.co_code[at]] != "BINARY_SUBSCR":
            assert spelling_of(stack_of.__code__, at) is None


def taking(entered, leave):
    table, rows = TABLE, Index(entered, leave)
    return table[rows]


class Index:
    """Numbers of rows that are asked for when they are used."""

    dtype, shape = np.dtype("int64"), (16,)

    def __init__(self, entered, leave):
        self._entered, self._leave = entered, leave

    def __array__(self, dtype=None, copy=None):
        self._entered.set()
        self._leave.wait(10)
        return ROWS


def test_shape_and_strides_of_the_array_in_a_running_frame():
    """The innermost frame is that of the index; the one below it takes rows."""
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=taking, args=(entered, leave))
    thread.start()
    entered.wait(10)
    try:
        stack = stack_of(thread.ident)
        at = next(place for place in stack if place[0] is taking.__code__)
        assert spelling_of(*at) == Spelling(("table",), ("rows",), 0)
        operands = Operands()
        for _ in range(LOOKS_FIRST):
            operands.look(thread.ident, at)
        assert operands.notes == {}  # it is not there any more: the frame on top is another one
    finally:
        leave.set()
        thread.join()


def spins(table, rows, going_on, entered):
    entered.set()
    while going_on.locked():
        table[rows]


def test_a_thread_that_takes_rows_again_and_again():
    going_on, entered = threading.Lock(), threading.Event()
    going_on.acquire()
    rows = np.tile(np.arange(1000), 2000)  # some 100 ms each
    thread = threading.Thread(target=spins, args=(TABLE, rows, going_on, entered), daemon=True)
    thread.start()
    entered.wait(10)
    operands = Operands()
    try:
        for _ in range(2000):
            stack = stack_of(thread.ident)
            if stack and stack[0][0] is spins.__code__:
                operands.look(thread.ident, stack[0])
            if operands.notes:
                break
    finally:
        going_on.release()
        thread.join()
    (note,) = operands.document()
    assert note["at"][2] == "spins"
    if sys.version_info < (3, 14):
        assert note["doing"] == "[]"
    assert (note["name"], note["axis"], note["taken"]) == ("table", 0, [2_000_000])
    assert (note["shape"], note["strides_bytes"]) == ([1000, 40], [4, 4000])
