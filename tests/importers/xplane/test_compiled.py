"""Compiled operations and memory of XLA's profiles: from both of its formats, and of a TPU."""

from pathlib import Path

import numpy as np
import pytest

from pinchpoint.analysis.compiled import compiled_modules, compiled_ops
from pinchpoint.importers import load
from pinchpoint.trace import HostKind
from xplane_messages import event, message, meta

DATA = Path(__file__).parents[2] / "data/xplane"
US = 1_000_000  # picoseconds


def tpu():
    """Two runs of a program of a product and a collective, as a TPU's plane has them."""
    product = "%dot.3 = f32[8,8]{1,0} dot(f32[8,8] %a, f32[8,8] %b)"
    facts = (message((1, 1), (7, 7)), message((1, 2), (3, 4_000)), message((1, 3), (3, 600)))
    of_dot = [event(1, at * US, 2 * US, *facts) for at in (1, 11)]
    of_sum = [event(2, at * US, 3 * US) for at in (4, 14)]
    runs = [event(3, at * US, 9 * US) for at in (0, 10)]
    device = message(
        (2, "/device:TPU:0"),
        meta(4, 1, product),
        meta(4, 2, "%all-reduce.1 = f32[8] all-reduce(f32[8] %x)"),
        meta(4, 3, "jit_step(4711)"),
        meta(5, 1, "hlo_category"),
        meta(5, 2, "flops"),
        meta(5, 3, "bytes_accessed"),
        meta(5, 7, "convolution fusion"),
        (3, message((1, 1), (2, "XLA Modules"), (3, 50), *runs)),
        (3, message((1, 2), (2, "XLA Ops"), (3, 50), *of_dot, *of_sum)),
    )
    return message((1, device))


def test_a_tpu_names_its_operations_by_their_instructions(written):
    trace = written(tpu())
    summed, product = compiled_ops(trace)
    assert (product.op, product.module, product.category) == (
        "dot.3",
        "jit_step",
        "convolution fusion",
    )
    assert [trace.text(trace.device_ops, "name", i) for i in range(2)] == ["dot.3", "all-reduce.1"]
    assert trace.text(trace.device_ops, "collective", 1) == "allreduce"
    assert (product.calls, product.total_ns) == (2, 4_000)
    assert product.flops_per_s == pytest.approx(2 * 4_000 / 4e-6)
    assert product.bytes_per_s == pytest.approx(2 * 600 / 4e-6)
    assert (summed.op, summed.category, summed.flops_per_s) == ("all-reduce.1", "all-reduce", None)
    (program,) = compiled_modules(trace)
    assert (program.name, program.total_ns, program.ops, program.calls) == (
        "jit_step",
        10_000,
        2,
        4,
    )


@pytest.mark.parametrize("name", ["h100_train", "cpu_train"])
def test_both_formats_of_one_recording_say_the_same(name):
    full, json = (load(DATA / f"{name}.{end}.gz") for end in ("xplane.pb", "trace.json"))
    assert len(full.compiled_ops) == len(json.compiled_ops) > 100
    a, b = compiled_ops(full), compiled_ops(json)
    assert [(o.op, o.module, o.calls) for o in a] == [(o.op, o.module, o.calls) for o in b]
    apart = [abs(x.total_ns - y.total_ns) for x, y in zip(a, b, strict=True)]
    assert max(apart) <= max(o.calls for o in a)  # JSON rounds to nanoseconds


def test_what_xla_runs_on_the_host_are_operators_in_both():
    for end in ("xplane.pb", "trace.json"):
        host = load(DATA / f"cpu_train.{end}.gz").host_ops
        assert int((host["kind"] == HostKind.OPERATOR).sum()) == 160


def test_allocations_of_the_device():
    rows = load(DATA / "h100_train.xplane.pb.gz").allocations
    assert len(rows) == 70
    assert set(rows["device"].tolist()) == {0}
    assert int(rows["allocated_bytes"].max()) == 318_768_128  # the peak that XLA itself states
    assert not rows.known("reserved_bytes").any()
    assert np.all(np.diff(rows["time_ns"]) >= 0)


def test_no_compiled_program_no_rows(written):
    plane = message((2, "/host:CPU"), meta(4, 1, "train"), (3, message((1, 9), event(1, 0, US))))
    trace = written(message((1, plane)))
    assert trace.compiled_ops is None
    assert compiled_ops(trace) == ()
