"""Real recordings, with what a slow reading with the json module counted in them."""

from pathlib import Path

import numpy as np
import pytest

from kineto_documents import SCANNERS, differences
from pinchpoint.importers import load
from pinchpoint.importers.kineto import read
from pinchpoint.trace import ApiKind, DeviceKind, HostKind
from pinchpoint.trace.intervals import flatten

DATA = Path(__file__).parents[2] / "data" / "kineto"


@pytest.mark.parametrize(
    ("name", "kernels", "busy_ns", "span_ns"),
    [
        ("cupy_mix", 45, 15_896_848, 17_057_482),
        ("decode_cudagraph", 568, 3_176_171, 11_417_046),
        ("gpt2_train_stack_memory", 290, 9_279_668, 41_310_273),
    ],
)
def test_kernels_and_busy_time(name, kernels, busy_ns, span_ns):
    ops = load(DATA / f"{name}.json.gz").device_ops
    assert int((ops["kind"] == DeviceKind.KERNEL).sum()) == kernels
    assert flatten(ops["start_ns"], ops.end_ns).total == busy_ns
    assert int(ops.end_ns.max() - ops["start_ns"].min()) == span_ns


@pytest.mark.skipif("native" not in SCANNERS, reason="no compiled scanner")
@pytest.mark.parametrize("path", sorted(DATA.glob("*.gz")), ids=lambda path: path.name)
def test_both_scanners_read_the_same(path):
    assert differences(read(path, scanner="native"), read(path, scanner="plain")) == []


def test_a_training_step_with_stacks_and_memory():
    trace = load(DATA / "gpt2_train_stack_memory.json.gz")
    assert trace.steps["duration_ns"].tolist() == [20_384_585, 21_626_187]
    assert len(trace.health) == 0
    assert len(trace.allocations) == 704
    assert trace.devices[0].multiprocessors == 132
    kinds = set(trace.host_ops["kind"].tolist())
    assert kinds == {HostKind.OPERATOR, HostKind.PYTHON, HostKind.MODULE, HostKind.ANNOTATION}
    assert trace.device_ops.known("host_op").all()
    assert trace.threads[int(trace.steps["thread"][0])].label == "thread 444 (python3)"
    operators = trace.host_ops["kind"][trace.device_ops["host_op"]]
    assert np.mean(operators == HostKind.OPERATOR) == 1


def test_graph_replays():
    trace = load(DATA / "decode_cudagraph.json.gz")
    calls, ops = trace.api_calls, trace.device_ops
    launchers = calls["kind"][ops["api_call"]]
    assert int((launchers == ApiKind.GRAPH_LAUNCH).sum()) == 8 * 76
    assert len(trace.device_annotations) == 8
