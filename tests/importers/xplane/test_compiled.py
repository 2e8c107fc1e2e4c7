"""Compiled operations and memory of XLA's profiles: from both of its formats, and of a TPU."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from kineto_documents import document
from kineto_documents import written as written_text
from pinchpoint.analysis.replay.recording_cost import calibrated
from pinchpoint.analysis.tables.compiled_programs import compiled_modules, compiled_ops
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
    if name == "h100_train":  # a graph: only the program, which JSON lacks, knows what is in it
        assert {o.op for o in compiled_ops(json)} == {"command_buffer_1"}
        return
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


def named_rows(trace, name, *columns):
    rows = getattr(trace, name)
    spelled = [trace.names[i] for i in rows["name"]]
    return list(zip(spelled, *(rows[c].tolist() for c in columns), strict=True))


@pytest.mark.parametrize("name", ["h100_train", "cpu_train"])
def test_both_formats_have_the_same_steps_calls_and_frames(name):
    full, json = (load(DATA / f"{name}.{end}.gz") for end in ("xplane.pb", "trace.json"))
    assert named_rows(full, "steps", "number") == named_rows(json, "steps", "number")
    ours, theirs = (named_rows(t, "host_ops", "kind", "thread") for t in (full, json))
    only_there = {"MemoryAllocation", "MemoryDeallocation"}  # JSON has no events without a length
    kinds = [Counter(k for n, k, _ in r if n not in only_there) for r in (ours, theirs)]
    assert kinds[0] == kinds[1]
    assert not [n for n, *_ in theirs if n.startswith("$")]


def test_graph_launches_are_linked_in_both():
    full, json = (load(DATA / f"h100_train.{end}.gz") for end in ("xplane.pb", "trace.json"))
    assert named_rows(full, "api_calls", "kind") == named_rows(json, "api_calls", "kind")
    columns = ("kind", "device", "stream", "correlation", "graph_node", "registers", "api_call")
    assert named_rows(full, "device_ops", *columns) == named_rows(json, "device_ops", *columns)
    assert json.device_ops.known("host_op").all()


def test_neither_format_is_corrected_by_the_costs_of_pytorchs_profiler():
    assert not any(calibrated(load(p)) for p in DATA.glob("*.gz"))


def test_operations_of_a_tpu_in_json(tmp_path):
    labels = [
        ("process_name", 3, 0, "/device:TPU:0"),
        ("process_name", 7, 0, "/host:CPU"),
        ("thread_name", 3, 1, "Steps"),
        ("thread_name", 3, 2, "XLA Modules"),
        ("thread_name", 3, 3, "XLA Ops"),
    ]
    meta = [
        {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
        for what, pid, tid, name in labels
    ]
    facts = {"hlo_category": "convolution fusion", "model_flops": "4000", "bytes_accessed": "600"}
    spans = [("0", 1, {}), ("jit_step(1)", 2, {}), ("dot.3", 3, facts), ("all-reduce.1", 3, {})]
    events = [
        {"ph": "X", "name": name, "pid": 3, "tid": tid, "ts": 10 + i, "dur": 2, "args": args}
        for i, (name, tid, args) in enumerate(spans)
    ]
    trace = load(written_text(tmp_path, document(*meta, *events), "x.trace.json.gz"))
    assert [n for (n,) in named_rows(trace, "device_ops")] == ["dot.3", "all-reduce.1"]
    assert trace.text(trace.device_ops, "collective", 1) == "allreduce"
    product, summed = sorted(compiled_ops(trace), key=lambda o: o.op, reverse=True)
    assert (product.op, product.category, summed.op) == (
        "dot.3",
        "convolution fusion",
        "all-reduce.1",
    )
    assert product.flops_per_s == pytest.approx(4000 / 2e-6)
    assert product.bytes_per_s == pytest.approx(600 / 2e-6)


def test_what_runs_in_a_graph_is_named_and_counted_by_its_program():
    """Four layers of 1024 on 4096 rows: twelve products of 2 · 4096 · 1024² FLOPs."""
    found = compiled_ops(load(DATA / "h100_train.xplane.pb.gz"))
    assert len(found) == 28
    assert {o.calls for o in found} == {5}
    products = [o for o in found if o.op.startswith("custom-call")]
    done = [o.flops_per_s * o.total_ns / 1e9 / o.calls for o in products]
    assert done == pytest.approx([2 * 4096 * 1024**2] * 11)
    (mask,) = (o for o in found if o.op == "loop_select_fusion")  # one array read, one written
    assert mask.bytes_per_s * mask.total_ns / 1e9 / 5 == pytest.approx(2 * 4096 * 1024 * 4)
