"""What loops write anew though it hardly changes, from programs written by hand."""

import pytest

from importers.xplane.test_partly_read import one
from importers.xplane.test_programs import instruction, shape
from pinchpoint.importers.xplane.fields import told_by
from pinchpoint.importers.xplane.hlo import Program
from pinchpoint.importers.xplane.programs import with_programs
from pinchpoint.importers.xplane.rewritten import Rewritten, rewritten
from pinchpoint.importers.xplane.space import StoredProgram
from xplane_messages import message

S32 = 4
LAYERS, LENGTH, WIDTH = 8, 4096, 64
WHOLE, SLICE, ROW = (LAYERS, LENGTH, WIDTH), (1, LENGTH, WIDTH), (1, 1, WIDTH)
SLICE_BYTES, WHOLE_BYTES = 4 * LENGTH * WIDTH, 4 * LAYERS * LENGTH * WIDTH
CARRIED = message((2, 13), (4, shape(kind=S32)), *[(4, shape(*WHOLE))] * 2)
TRIPS = (43, b'{"known_trip_count":{"n":"8"}}')


def number(name, opcode, at, operands=(), *more):
    return one(name, opcode, at, operands, (), S32, *more)


STATE = instruction("state", "parameter", CARRIED, 20)
COUNT = number("count", "get-tuple-element", 21, (20,), (13, 0))
CACHE = one("cache", "get-tuple-element", 22, (20,), WHOLE, 11, (13, 1))
STACK = one("stack", "get-tuple-element", 23, (20,), WHOLE, 11, (13, 2))
ZERO = number("zero", "constant", 24, (), (8, b"0"))
ONE = number("one", "constant", 25, (), (8, b"1"))
NEXT = number("next", "add", 26, (21, 25))
TAKEN = one("taken", "dynamic-slice", 27, (22, 21, 24, 24), SLICE)
NEW = one("new", "custom-call", 28, (), ROW)
CHANGED = one("changed", "dynamic-update-slice", 29, (27, 28, 24, 25, 24), SLICE)
PUT = one("put", "dynamic-update-slice", 30, (23, 29, 21, 24, 24), WHOLE)
LEAVING = instruction("leaving", "tuple", CARRIED, 31, (26, 22, 30))


def program(*inside, more=()):
    """A loop over layers, around it what fills its second array and what copies that."""
    entry = message(
        (1, "main"), (5, 1), (6, 6),
        one("given", "parameter", 1, (), WHOLE),
        one("filled", "fusion", 2, (), WHOLE),
        number("first", "constant", 3, (), (8, b"0")),
        instruction("all", "tuple", CARRIED, 4, (3, 1, 2)),
        instruction("loop", "while", CARRIED, 5, (4,), (38, 2), TRIPS,
                    (7, message((2, "jit(f)/scan"), (3, "model.py"), (4, 9)))),
        one("result", "get-tuple-element", 7, (5,), WHOLE, 11, (13, 2)),
        one("out", "copy", 6, (7,), WHOLE),
        *more,
    )  # fmt: skip
    body = message((1, "body"), (5, 2), (6, 31), *inside)
    return message((1, "jit_f"), (6, 1), (3, entry), (3, body))


def of(*inside, more=()):
    return rewritten(Program(told_by(program(*inside, more=more))))


START = (STATE, COUNT, CACHE, STACK, ZERO, ONE, NEXT)
AT, SHARE = "model.py:9", 1 / LENGTH


def test_slices_that_are_changed_at_one_place_and_put_into_another_array():
    assert of(*START, NEW, TAKEN, CHANGED, PUT, LEAVING) == {
        "taken": Rewritten(AT, 0.0, 0.0),
        "changed": Rewritten(AT, SHARE, SHARE),
        "put": Rewritten(AT, SHARE, SHARE, SLICE_BYTES),
        "filled": Rewritten(AT, 0.0, 0.0),
        "out": Rewritten(AT, 0.0, 0.0, None, WHOLE_BYTES),
    }


def test_where_something_else_reads_the_slice_carrying_still_copies_it():
    read = one("read", "custom-call", 40, (29,), ROW)
    found = of(*START, NEW, TAKEN, CHANGED, read, PUT, LEAVING)
    assert found["put"] == Rewritten(AT, SHARE, 1.0, SLICE_BYTES)
    assert "read" not in found


def test_a_slice_that_is_set_as_a_whole_in_the_array_that_is_carried():
    """As ``cache.at[layer].set(changed)``: where the index is out of bounds, it stays as it was."""
    taken = one("taken", "dynamic-slice", 27, (23, 21, 24, 24), SLICE)
    bounds = one("bounds", "compare", 41, (21, 25), SLICE, 1)
    either = one("either", "select", 42, (41, 29, 27), SLICE)
    put = one("put", "dynamic-update-slice", 30, (23, 42, 21, 24, 24), WHOLE)
    found = of(*START, NEW, taken, CHANGED, bounds, either, put, LEAVING)
    assert found["put"] == Rewritten(AT, SHARE, SHARE, SLICE_BYTES)
    assert set(found) == {"taken", "changed", "either", "put"}  # the array is needed before, after


def test_a_place_that_is_one_of_the_indices_of_a_scan():
    """``jnp.arange(layers)`` as ``xs``: in each turn the index is read there."""
    state = message((2, 13), (4, shape(kind=S32)), *[(4, shape(*WHOLE))] * 2,
                    (4, shape(LAYERS, kind=S32)))  # fmt: skip
    indices = one("indices", "get-tuple-element", 43, (20,), (LAYERS,), S32, (13, 3))
    index = one("index", "dynamic-slice", 44, (43, 21), (1,), S32)
    taken = one("taken", "dynamic-slice", 27, (23, 44, 24, 24), SLICE)
    put = one("put", "dynamic-update-slice", 30, (23, 29, 44, 24, 24), WHOLE)
    leaving = instruction("leaving", "tuple", state, 31, (26, 22, 30, 43))
    assert set(of(*START, indices, index, NEW, taken, CHANGED, put, leaving)) == {
        "taken",
        "changed",
        "put",
    }


def test_through_fusions():
    """As XLA fuses it: one fusion takes and changes a slice, another puts it back."""
    takes = message(
        (1, "takes"), (5, 3), (6, 52),
        one("p0", "parameter", 50, (), WHOLE), number("p1", "parameter", 51, (), (9, 1)),
        one("p2", "parameter", 53, (), ROW, 11, (9, 2)), number("z", "constant", 54, (), (8, b"0")),
        one("cut", "dynamic-slice", 55, (50, 51, 54, 54), SLICE),
        one("set", "dynamic-update-slice", 52, (55, 53, 54, 54, 54), SLICE),
    )  # fmt: skip
    puts = message(
        (1, "puts"), (5, 4), (6, 62),
        one("q0", "parameter", 60, (), WHOLE), one("q1", "parameter", 61, (), SLICE, 11, (9, 1)),
        number("q2", "parameter", 63, (), (9, 2)), number("y", "constant", 64, (), (8, b"0")),
        one("back", "dynamic-update-slice", 62, (60, 61, 63, 64, 64), WHOLE),
    )  # fmt: skip
    fused = one("fused", "fusion", 29, (22, 21, 28), SLICE, 11, (38, 3))
    put = one("put", "fusion", 30, (23, 29, 21), WHOLE, 11, (38, 4))
    module = program(*START, NEW, fused, put, LEAVING) + message((3, takes), (3, puts))
    found = rewritten(Program(told_by(module)))
    assert found["fused"] == Rewritten(AT, SHARE, SHARE)
    assert found["put"] == Rewritten(AT, SHARE, SHARE, SLICE_BYTES)


@pytest.mark.parametrize(
    "inside",
    [
        pytest.param(
            (TAKEN, one("all", "multiply", 29, (27, 27), SLICE), PUT, LEAVING),
            id="the slice is computed anew",
        ),
        pytest.param(
            (
                NEW,
                TAKEN,
                CHANGED,
                one("put", "dynamic-update-slice", 30, (23, 29, 26, 24, 24), WHOLE),
                LEAVING,
            ),
            id="put elsewhere",
        ),
        pytest.param(
            (
                NEW,
                one("put", "dynamic-update-slice", 30, (23, 28, 21, 25, 24), WHOLE),
                LEAVING,
            ),
            id="one array, updated in place",
        ),
        pytest.param(
            (
                NEW,
                TAKEN,
                CHANGED,
                PUT,
                one("other", "custom-call", 41, (), WHOLE),
                instruction("leaving", "tuple", CARRIED, 31, (26, 41, 30)),
            ),
            id="the first array is written, too",
        ),
        pytest.param(
            (
                TAKEN,
                one("much", "custom-call", 28, (), (1, LENGTH * 3 // 4, WIDTH)),
                CHANGED,
                PUT,
                LEAVING,
            ),
            id="most of the slice changes",
        ),
    ],
)
def test_what_is_needed_is_not_named(inside):
    assert of(*START, *inside) == {}


def test_what_else_reads_what_was_filled_needs_it():
    reader = one("reader", "custom-call", 8, (2,), ROW)
    assert "filled" not in of(*START, NEW, TAKEN, CHANGED, PUT, LEAVING, more=(reader,))


def test_computations_that_call_themselves_end():
    """Twice each, thirty levels deep: a thousand million looks."""
    again = [number(f"again.{i}", "fusion", 70 + i, (), (38, 2)) for i in range(2)]
    assert of(*START, NEW, TAKEN, *again, CHANGED, PUT, LEAVING) == {}


@pytest.mark.parametrize(("size", "told"), [(WHOLE_BYTES, "model.py:9"), (WHOLE_BYTES + 4, None)])
def test_a_copy_in_a_graph_is_known_by_its_size(size, told):
    """Of a graph only kernels are recorded, under its name."""
    row = {
        "op": "command_buffer_1", "module": "jit_f", "device": 0, "start_ns": 0, "duration_ns": 5,
        "source": None, "flops": None, "bytes": None, "kernel": "MemcpyD2D", "copied_bytes": size,
    }  # fmt: skip
    stored = message((1, program(*START, NEW, TAKEN, CHANGED, PUT, LEAVING)))
    with_programs([row], [StoredProgram(None, memoryview(stored))])
    assert row.get("rewritten_at") == told
