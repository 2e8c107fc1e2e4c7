"""A TPU's plane: steps as the device counts them, and copies to and from the host's memory."""

import pytest

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.trace import DeviceKind, MemoryKind
from xplane_messages import event, message, meta

US = 10**6  # picoseconds


def plane(instruction, count=3):
    """Steps of 10 µs, each of which runs one instruction for 4 µs."""
    ran = [event(1, at * 10 * US, 4 * US) for at in range(count)]
    counted = [event(10 + at, at * 10 * US, 10 * US) for at in range(count)]
    return message(
        (2, "/device:TPU:0"),
        meta(4, 1, instruction),
        *[meta(4, 10 + at, str(7 + at)) for at in range(count)],
        (3, message((1, 3), (2, "Steps"), (3, 50), *counted)),
        (3, message((1, 2), (2, "XLA Ops"), (3, 50), *ran)),
    )


def test_steps_are_those_of_the_device(written):
    trace = written(message((1, plane("%fusion.3 = f32[8]{0} fusion(f32[8] %a)"))))
    assert trace.steps["number"].tolist() == [7, 8, 9]
    assert steps(trace).how == "marker"
    assert steps(trace).typical_ns == 10_000


def test_markers_of_the_host_come_first(written):
    host = message(
        (2, "/host:CPU"),
        meta(4, 1, "train"),
        meta(5, 1, "step_num"),
        (3, message((1, 9), (2, "main"), (3, 50), event(1, 0, US, message((1, 1), (4, 5))))),
    )
    trace = written(message((1, host), (1, plane("%fusion.3 = f32[8]{0} fusion(f32[8] %a)"))))
    assert trace.steps["number"].tolist() == [5]


@pytest.mark.parametrize(
    ("instruction", "ends"),
    [
        pytest.param(
            "%copy-done.9 = f32[8]{0:S(5)} copy-done((f32[8]{0:S(5)}, f32[8]{0}, u32[]) %c)",
            (MemoryKind.DEVICE, MemoryKind.PINNED),
            id="to the host",
        ),
        pytest.param(
            "%copy-done.9 = f32[8]{0:T(256)} copy-done((f32[8]{0}, f32[8]{0:S(5)}, u32[]) %c)",
            (MemoryKind.PINNED, MemoryKind.DEVICE),
            id="from the host",
        ),
        pytest.param(
            "%copy-done.9 = f32[5,8]{1,0:T(8,128)S(5)} copy-done((f32[5,8]{1,0:T(8,128)S(5)},"
            " f32[5,8]{1,0:T(8,128)}, u32[]{:S(2)}) %c)",
            (MemoryKind.DEVICE, MemoryKind.PINNED),
            id="tiles between the shape and the space",
        ),
        pytest.param(
            "%copy-start.9 = (f32[5,8]{1,0:T(8,128)}, f32[5,8]{1,0:T(8,128)S(5)}, u32[]{:S(2)})"
            " copy-start(f32[5,8]{1,0:T(8,128)S(5)} %x)",
            (MemoryKind.PINNED, MemoryKind.DEVICE),
            id="begun from the host",
        ),
        pytest.param(
            "%copy-start.9 = (f32[8]{0:S(5)}, f32[8]{0}, u32[]) copy-start(f32[8]{0} %x)",
            (MemoryKind.DEVICE, MemoryKind.PINNED),
            id="begun",
        ),
        pytest.param("%copy.2 = f32[8]{0} copy(f32[8]{0:S(1)} %x)", None, id="within the device"),
        pytest.param("%fusion.3 = f32[8]{0} fusion(f32[8]{0:S(5)} %x)", None, id="no copy"),
    ],
)
def test_copies_to_the_memory_of_the_host(written, instruction, ends):
    trace = written(message((1, plane(instruction))))
    ops = trace.device_ops
    kind = DeviceKind.KERNEL if ends is None else DeviceKind.COPY
    assert set(ops["kind"].tolist()) == {kind}
    if ends is not None:
        assert (ops.value("from_memory", 0), ops.value("to_memory", 0)) == ends
    name = instruction.split(" = ")[0].lstrip("%")
    assert trace.names[int(trace.compiled_ops["op"][0])] == name


def described(key, name, *stats):
    return (4, message((1, key), (2, message((1, key), (2, name), *((5, s) for s in stats)))))


def test_costs_and_the_line_of_a_fusion_come_from_the_program(written):
    """As recordings of a TPU v6e have it: costs stand with the description of an operation."""
    instruction = "%fusion.3 = f32[8]{0} fusion(f32[8] %a)"
    costs = [
        message((1, 1), (3, 4096)),
        message((1, 2), (3, 10**9)),
        message((1, 3), (5, "loop fusion")),
    ]
    metadata = message((2, "jit(step)/dot"), (3, "model.py"), (4, 41))
    program = message((1, "jit_step"), (3, message((2, message((1, "fusion.3"), (7, metadata))))))
    proto = message((1, program))
    damaged = message((1, 1), (6, b"\x0a\x7fcut"))
    device = message(
        (2, "/device:TPU:0"),
        (6, message((1, 4), (5, "TPU v6 Lite"))),
        described(1, instruction, *costs),
        described(2, "jit_step(77)"),
        *(
            meta(5, n, name)
            for n, name in enumerate(
                ("bytes_accessed", "flops", "hlo_category", "device_type_string"), 1
            )
        ),
        (3, message((1, 1), (2, "XLA Modules"), (3, 50), event(2, 0, 9 * US))),
        (3, message((1, 2), (2, "XLA Ops"), (3, 50), event(1, US, 4 * US))),
    )
    kept = message(
        (2, "/host:metadata"),
        meta(5, 1, "Hlo Proto"),
        described(7, "jit_step(77)", message((1, 1), (6, proto))),
        described(8, "jit_other(78)", damaged),
    )
    trace = written(message((1, device), (1, kept)))
    ops = trace.compiled_ops
    assert (ops["bytes"][0], ops["flops"][0]) == (4096, 10**9)
    assert trace.text(ops, "source", 0) == "model.py:41"
    assert trace.text(ops, "module", 0) == "jit_step"
    assert trace.devices[0].name == "TPU v6 Lite"
    assert category_of_device_ops(trace).tolist() == [Category.ELEMENTWISE]
