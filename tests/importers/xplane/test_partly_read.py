"""How much is read of what a compiled program computes, from programs written by hand."""

import pytest

from importers.xplane.test_programs import F32, instruction, shape
from pinchpoint.importers.xplane.hlo import Program, told_by
from pinchpoint.importers.xplane.partly_read import Needed, partly_read
from xplane_messages import message, varint

U32, S32 = 8, 4
MANY, FEW = 1 << 20, 1 << 10


def told(name, scope=""):
    return (7, message((2, scope or f"jit(f)/{name}"), (3, "model.py"), (4, 9)))


def one(name, opcode, number, operands=(), sizes=(MANY,), kind=F32, *more, scope=""):
    of = shape(*sizes, kind=kind)
    return instruction(name, opcode, of, number, operands, told(name, scope), *more)


def sort(number, operands, *, scope="", target=""):
    """Of keys, and of what goes with them."""
    pair = message((2, 13), (4, shape(MANY, kind=U32)), (4, shape(MANY, kind=S32)))
    opcode = "custom-call" if target else "sort"
    more = (told("sort", scope), (28, target)) if target else (told("sort", scope),)
    return instruction("sort", opcode, pair, number, operands, *more)


def of(*instructions, root, inside=(), inside_root=0):
    entry = message((1, "main"), (5, 1), (6, root), *instructions)
    called = message((1, "fused"), (5, 2), (6, inside_root), *inside)
    return partly_read(Program(told_by(message((1, "jit_f"), (6, 1), (3, entry), (3, called)))))


SUMS = (30, message((1, varint(1)), (2, varint(0))))
HIDDEN, HEAD = one("hidden", "parameter", 10, (), (4096, 64)), one("head", "parameter", 11, ())
LOGITS = one("logits", "dot", 12, (10, 11), (4096, 256), F32, SUMS)
LAST = one("last", "slice", 13, (12,), (32, 256))


def test_a_product_of_which_some_rows_are_read():
    found = of(HIDDEN, HEAD, LOGITS, LAST, root=13)
    assert found == {"logits": Needed("model.py:9", 32 / 4096, "results")}


@pytest.mark.parametrize("opcode", ["reduce", "while", "custom-call", "all-reduce"])
def test_what_anything_else_reads_is_read(opcode):
    other = one("other", opcode, 14, (12,), (4,))
    assert of(HIDDEN, HEAD, LOGITS, LAST, other, root=13) == {}


def test_what_leaves_the_program_is_read():
    both = instruction("both", "tuple", message((2, 13), (4, shape(1))), 15, (12, 13))
    assert of(HIDDEN, HEAD, LOGITS, LAST, both, root=15) == {}


def test_elementwise_work_in_a_fusion_hands_on_what_is_read_of_it():
    inside = (
        one("given", "parameter", 20, (), (4096, 256)),
        one("raised", "exponential", 21, (20,), (4096, 256)),
    )
    fusion = one("fusion", "fusion", 12, (10,), (4096, 256), F32, (38, 2))
    hidden = one("hidden", "dot", 10, (30, 31), (4096, 256), F32, SUMS)
    given = (one("a", "parameter", 30, (), (4096, 64)), one("b", "parameter", 31, (), (64, 256)))
    found = of(*given, hidden, fusion, LAST, root=13, inside=inside, inside_root=21)
    assert {name: needed.ratio for name, needed in found.items()} == {
        "fusion": 32 / 4096,
        "hidden": 32 / 4096,
    }


@pytest.mark.parametrize(("rows", "told"), [(1024, False), (32, True)])
def test_what_a_product_was_padded_with_is_not_work_that_nobody_reads(rows, told):
    """XLA pads 1024 rows to 4096 for its kernels, and cuts the result; to 32 rows the program."""
    padding = message((1, message((2, varint(3072)))))
    padded = one("padded", "pad", 12, (10, 9), (4096, 64), F32, (14, padding))
    zero = one("zero", "constant", 9, (), ())
    hidden = one("hidden", "parameter", 10, (), (1024, 64))
    logits = one("logits", "dot", 13, (12, 11), (4096, 256), F32, SUMS)
    scaled = one("scaled", "fusion", 14, (13,), (4096, 256), F32, (38, 2))
    cut = one("cut", "slice", 15, (14,), (rows, 256))
    inside = (
        one("given", "parameter", 20, (), (4096, 256)),
        one("raised", "exponential", 21, (20,), (4096, 256)),
    )
    steps = (zero, hidden, HEAD, padded, logits, scaled, cut)
    found = of(*steps, root=15, inside=inside, inside_root=21)
    assert set(found) == ({"logits", "scaled"} if told else set())


def test_padding_within_a_fusion_is_padding_too():
    inside = (
        one("given", "parameter", 20, (), (1024, 64)),
        one("zero", "constant", 22, (), ()),
        one("padded", "pad", 21, (20, 22), (4096, 64)),
    )
    hidden = one("hidden", "parameter", 10, (), (1024, 64))
    fusion = one("fusion", "fusion", 12, (10,), (4096, 64), F32, (38, 2))
    logits = one("logits", "dot", 13, (12, 11), (4096, 256), F32, SUMS)
    cut = one("cut", "slice", 15, (13,), (1024, 256))
    assert of(hidden, HEAD, fusion, logits, cut, root=15, inside=inside, inside_root=21) == {}


def test_a_fusion_that_takes_a_slice_reads_a_slice():
    inside = (
        one("given", "parameter", 20, (), (4096, 256)),
        one("taken", "dynamic-slice", 21, (20,), (32, 256)),
    )
    fusion = one("fusion", "fusion", 13, (12,), (32, 256), F32, (38, 2))
    found = of(HIDDEN, HEAD, LOGITS, fusion, root=13, inside=inside, inside_root=21)
    assert found["logits"].ratio == 32 / 4096


SEED = one("seed", "parameter", 1, (), (2,), U32)
BITS = one("bits", "fusion", 2, (1,), (MANY,), U32, (38, 2))
MIXED = (one("given", "parameter", 20, (), (2,), U32), one("mixed", "xor", 21, (20,), (MANY,), U32))
PLACES = one("places", "iota", 3, (), (MANY,), S32)
ORDER = one("order", "get-tuple-element", 5, (4,), (MANY,), S32, (13, 1))
DRAWN = one("drawn", "slice", 6, (5,), (FEW,), S32)


@pytest.mark.parametrize("target", ["", "xla.gpu.ext.cub_sort_pairs", "__cub$DeviceRadixSort"])
def test_a_permutation_of_which_little_is_taken(target):
    steps = (SEED, BITS, PLACES, sort(4, (2, 3), target=target), ORDER, DRAWN)
    found = of(*steps, root=6, inside=MIXED, inside_root=21)
    assert found == {
        "sort": Needed("model.py:9", FEW / MANY, "permutation"),
        "bits": Needed("model.py:9", FEW / MANY, "results"),  # made for nothing else
    }


def test_a_permutation_that_is_used_as_a_whole():
    steps = (SEED, BITS, PLACES, sort(4, (2, 3)), ORDER)
    assert of(*steps, root=5, inside=MIXED, inside_root=21) == {}


def in_a_loop(mixing):
    """As XLA writes it for a CPU: the rounds of the mixing are the body of a loop."""
    counters = one("counters", "iota", 30, (), (MANY,), U32)
    loop = one("rounds", "while", 31, (30,), (MANY,), U32, (38, 2))
    bits = one("bits", "xor", 2, (31, 30), (MANY,), U32)
    given = one("given", "parameter", 20, (), (MANY,), U32)
    steps = (counters, loop, bits, PLACES, sort(4, (2, 3)), ORDER, DRAWN)
    body = one("mixed", mixing, 21, (20, 20), (MANY,), U32)
    return of(*steps, root=6, inside=(given, body), inside_root=21).get("sort")


def test_random_bits_that_a_loop_makes():
    assert in_a_loop("xor") == Needed("model.py:9", FEW / MANY, "permutation")


@pytest.mark.parametrize("other", ["dot", "gather", "reduce", "custom-call"])
def test_what_a_loop_computes_of_data_is_no_random_bits(other):
    assert in_a_loop(other).kind == "sort"


def test_a_loop_that_goes_on_from_data_makes_no_random_bits():
    data = one("data", "parameter", 30, (), (MANY,), U32)
    loop = one("rounds", "while", 31, (30,), (MANY,), U32, (38, 2))
    steps = (data, loop, PLACES, sort(4, (31, 3)), ORDER, DRAWN)
    given = one("given", "parameter", 20, (), (MANY,), U32)
    mixed = one("mixed", "xor", 21, (20, 20), (MANY,), U32)
    found = of(*steps, root=6, inside=(given, mixed), inside_root=21)
    assert found["sort"].kind == "sort"


SCORES = one("scores", "parameter", 2, (), (MANY,))


def test_a_sort_by_scores_of_which_the_first_are_taken_is_a_selection():
    found = of(SCORES, PLACES, sort(4, (2, 3)), ORDER, DRAWN, root=6)
    assert found == {"sort": Needed("model.py:9", 5 * 4 / (2 * 4 * 8), "sort", FEW / MANY)}
    assert found["sort"].on_cpu_ratio == pytest.approx(0.01 + 1.4 * FEW / MANY)


def part_of_a_sort(begin, *between, of_number=5):
    bounds = (17, message((1, begin), (2, begin + FEW)))
    part = one("part", "slice", 6, (of_number,), (FEW,), F32, bounds)
    return of(SCORES, PLACES, sort(4, (2, 3)), ORDER, *between, part, root=6)


def test_the_last_are_a_selection_too_and_so_are_the_first_of_the_reverse():
    turned = one("turned", "reverse", 7, (5,))
    assert part_of_a_sort(MANY - FEW)["sort"].kind == "sort"
    assert part_of_a_sort(0, turned, of_number=7)["sort"].kind == "sort"


def test_the_middle_of_a_sorted_array_is_no_selection_of_the_best():
    assert part_of_a_sort(MANY // 2) == {}


def test_a_selection_that_was_compiled_to_a_sort_is_one():
    assert of(SCORES, PLACES, sort(4, (2, 3), scope="jit(f)/top_k"), ORDER, DRAWN, root=6) == {}


def test_elements_at_any_places_of_a_sorted_array_need_the_sort():
    at = one("at", "parameter", 7, (), (FEW,), S32)
    found = of(SCORES, PLACES, sort(4, (2, 3)), ORDER, at, one("few", "gather", 6, (5, 7), (FEW,)),
               root=6)  # fmt: skip
    assert found == {}
