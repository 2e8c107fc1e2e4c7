"""Advice in the words of the program."""

from dataclasses import replace

import pytest
from pinchpoint.diagnosis.spoken import in_its_words, recordable

from pinchpoint.diagnosis.finding import Found
from pinchpoint.trace import Device
from program import Program

KNOB = "pinchpoint try --knob tf32 -- python train.py"


def finding(hint):
    return Found(summary="", evidence=(), cost_ns_per_step=1, fix="", confirm=KNOB, hint=hint)


def program(operator, vendor="nvidia"):
    p = Program()
    for _ in p.steps(2):
        with p.row(operator):
            p.kernel("kernel", 10)
    return replace(p.trace(), devices=(Device(0, vendor=vendor),))


def test_torch_code_is_for_programs_that_show_torch():
    hint = "x = x.to(torch.bfloat16)"
    assert in_its_words(program("aten::mul"), finding(hint)) == finding(hint)
    other = in_its_words(program("cupy_multiply"), finding(hint))
    assert other.hint is None
    assert "--knob" not in other.confirm


def test_commands_are_for_all_programs():
    hint = "nvidia-smi -q -d PERFORMANCE"
    assert in_its_words(program("cupy_multiply"), finding(hint)).hint == hint


@pytest.mark.parametrize(("vendor", "kept"), [("nvidia", True), ("amd", True), ("meta", False)])
def test_streams_of_cuda_are_for_devices_that_have_them(vendor, kept):
    hint = "with torch.cuda.stream(side): batch = batch.to(device)"
    assert (in_its_words(program("aten::mul", vendor), finding(hint)).hint == hint) == kept


def test_another_framework_has_its_own_way():
    hint = 'torch.set_float32_matmul_precision("high")'
    asked = replace(finding(hint), fix="Let float32 products use TF32, or use bfloat16 autocast")
    p = Program()
    p.kernel("cupy_multiply__float32", 10)
    other = in_its_words(p.trace(), asked)
    assert "CUPY_TF32=1" in other.hint
    assert "autocast" not in other.fix


@pytest.mark.parametrize(
    ("record", "general"),
    [
        ("shapes of inputs: record_shapes=True", "shapes of inputs"),
        ("shapes and stacks: record_shapes=True, with_stack=True", "shapes and stacks"),
        ("shapes (record_shapes=True), or pinchpoint run", "shapes, or pinchpoint run"),
        (
            "a memory snapshot, or a trace with profile_memory=True, of two steps",
            "a memory snapshot, of two steps",
        ),
        ("all ranks: pinchpoint ranks DIR", "all ranks: pinchpoint ranks DIR"),
    ],
)
def test_options_of_torch_are_for_programs_that_show_torch(record, general):
    assert recordable(program("aten::mul"), record) == record
    assert recordable(program("cupy_multiply"), record) == general
