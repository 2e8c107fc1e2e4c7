"""What instructions of compiled programs must compute and move, from programs written by hand."""

import pytest

from pinchpoint.importers.xplane.fields import told_by
from pinchpoint.importers.xplane.flow import Flow
from pinchpoint.importers.xplane.hlo import Program
from pinchpoint.importers.xplane.programs import with_programs
from pinchpoint.importers.xplane.space import StoredProgram
from xplane_messages import message, varint

F32, BF16, U8 = 11, 16, 6


def shape(*sizes, kind=F32):
    return message((2, kind), (3, b"".join(map(varint, sizes))))


def instruction(name, opcode, of, number, operands=(), *more):
    packed = b"".join(map(varint, operands))
    return (2, message((1, name), (2, opcode), (3, of), (35, number), (36, packed), *more))


def costs(*instructions, inside=(), root=0):
    """FLOPs and bytes by name, of an entry and of a computation that a fusion in it calls."""
    entry = message((1, "main"), (5, 1), *instructions)
    called = message((1, "fused"), (5, 2), (6, root), *inside)
    program = message((1, message((1, "jit_step"), (6, 1), (3, entry), (3, called))))
    rows = [
        {
            "op": name, "module": "jit_step", "device": 0, "start_ns": at, "duration_ns": 5,
            "source": None, "flops": None, "bytes": None, "kernel": name,
        }
        for at, name in enumerate(("asked", "other"))
    ]  # fmt: skip
    with_programs(rows, [StoredProgram(None, memoryview(program))])
    costs.rows = rows
    return rows[0]["flops"], rows[0]["bytes"]


A, B = (
    instruction("a", "parameter", shape(8, 16), 10),
    instruction("b", "parameter", shape(16, 4), 11),
)


def test_a_product_sums_over_the_dimensions_that_it_contracts():
    of_dot = (30, message((1, varint(1)), (2, varint(0))))
    found = costs(A, B, instruction("asked", "dot", shape(8, 4), 12, (10, 11), of_dot))
    assert found == (2 * 8 * 4 * 16, 4 * (8 * 16 + 16 * 4 + 8 * 4))


@pytest.mark.parametrize(
    ("target", "operands", "of"),
    [
        ("__cudnn$convForward", (20, 21), (2, 32, 32, 8)),
        ("__cudnn$convBackwardInput", (22, 21), (2, 32, 32, 3)),
        ("__cudnn$convBackwardFilter", (20, 22), (5, 5, 3, 8)),
    ],
)
def test_a_convolution_and_its_gradients_compute_as_much(target, operands, of):
    """Each of 2 · 32 · 32 · 8 results sums 5 · 5 · 3 products. The workspace is not moved."""
    numbers = (16, message((4, 3)))  # results are the last dimension of the kernel
    result = message((2, 13), (4, shape(*of)), (4, shape(4096, kind=U8)))
    found = costs(
        instruction("image", "parameter", shape(2, 32, 32, 3), 20),
        instruction("kernel", "parameter", shape(5, 5, 3, 8), 21),
        instruction("gradient", "parameter", shape(2, 32, 32, 8), 22),
        instruction("asked", "custom-call", result, 12, operands, numbers, (28, target)),
    )
    assert found[0] == 2 * (2 * 32 * 32 * 8) * (5 * 5 * 3)
    assert found[1] == 4 * (2 * 32 * 32 * 3 + 5 * 5 * 3 * 8 + 2 * 32 * 32 * 8)


def test_a_fusion_that_writes_a_row_into_a_table_moves_the_row():
    inside = (
        instruction("table", "parameter", shape(1000, 64, kind=BF16), 30),
        instruction("row", "parameter", shape(1, 64, kind=BF16), 31),
        instruction("at", "parameter", shape(), 32),
        instruction("flat", "bitcast", shape(1000, 64, kind=BF16), 33, (30,)),
        instruction(
            "put", "dynamic-update-slice", shape(1000, 64, kind=BF16), 34, (33, 31, 32, 32)
        ),
    )
    called = (38, varint(2))
    fusion = instruction("asked", "fusion", shape(1000, 64, kind=BF16), 12, (), called)
    assert costs(fusion, inside=inside, root=34) == (None, 2 * 64 * 2 + 4)


def test_a_fusion_that_takes_a_row_out_of_a_table_moves_the_row():
    inside = (
        instruction("table", "parameter", shape(1000, 64), 30),
        instruction("at", "parameter", shape(), 31),
        instruction("taken", "dynamic-slice", shape(1, 64), 32, (30, 31, 31)),
        instruction("twice", "add", shape(1, 64), 33, (32, 32)),
    )
    fusion = instruction("asked", "fusion", shape(1, 64), 12, (), (38, varint(2)))
    assert costs(fusion, inside=inside, root=33) == (None, 2 * 64 * 4 + 4)


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        pytest.param("/code/env.py", "/code/env.py:25", id="the program's own"),
        pytest.param("/x/site-packages/env/env.py", "/code/main.py:8", id="of a library: its call"),
    ],
)
def test_lines_of_newer_programs_are_in_an_index_of_frames(inner, expected):
    """What XLA made itself comes from the line of the loop that it is in."""
    at = (7, message((2, "jit(step)/while"), (15, 2)))
    loop = instruction("loop", "while", shape(4), 12, (), at, (38, varint(2)))
    body = message((1, "body"), (5, 2), instruction("asked", "copy", shape(4), 30))
    entry = message((1, "main"), (5, 1), loop)
    locations = [message((1, 1), (2, 1), (3, 8)), message((1, 2), (2, 1), (3, 25))]
    frames = [message((1, 1)), message((1, 2), (2, 1))]
    index = message(
        (1, "/code/main.py"), (1, inner), (2, "layout"),
        *((3, one) for one in locations), *((4, one) for one in frames),
    )  # fmt: skip
    program = message((1, message((1, "jit_step"), (6, 1), (3, entry), (3, body), (17, index))))
    row = {
        "op": "asked", "module": "jit_step", "device": None, "start_ns": 0, "duration_ns": 5,
        "source": None, "flops": None, "bytes": None, "kernel": None,
    }  # fmt: skip
    with_programs([row], [StoredProgram(None, memoryview(program))])
    assert row["source"] == expected


@pytest.mark.parametrize("given", [False, True])
def test_a_copied_argument_and_whether_it_was_given_to_be_changed(given):
    cache = instruction("cache", "parameter", shape(8), 1, (), (9, 1))
    entry = message(
        (1, "main"), (5, 1), (6, 2), cache, instruction("asked", "copy", shape(8), 2, (1,))
    )
    aliases = message((1, message((2, 1), (4, 1))))
    module = ((1, "jit_f"), (6, 1), (3, entry), *(((8, aliases),) if given else ()))
    program = Program(told_by(message(*module)))
    assert program.copied_argument(program.by_name["asked"]) == ("cache", given)


def test_values_that_are_made_of_themselves_end_in_a_damaged_file():
    entry = message(
        (1, "main"), (5, 1), (6, 2),
        instruction("turned", "bitcast", shape(8), 1, (1,)),
        instruction("asked", "copy", shape(8), 2, (1,)),
        instruction("fused", "fusion", shape(8), 3, (3,), (38, varint(2))),
        instruction("reads", "negate", shape(8), 4, (3,)),
    )  # fmt: skip
    inside = message(
        (1, "inside"), (5, 2), (6, 5), instruction("given", "parameter", shape(8), 5, (), (9, 0))
    )
    program = Program(told_by(message((1, "jit_f"), (6, 1), (3, entry), (3, inside))))
    assert program.copied_argument(program.by_name["asked"]) is None
    assert Flow(program).made(3) == []


def test_a_fourier_transform_says_its_longest_length():
    x = instruction("x", "parameter", shape(4, 8, 16_001), 10)
    lengths = (32, varint(8) + varint(16_001))
    costs(x, instruction("asked", "fft", shape(4, 8, 8_001), 12, (10,), lengths))
    assert costs.rows[0]["fft_length"] == 16_001
    assert costs.rows[1].get("fft_length") is None
