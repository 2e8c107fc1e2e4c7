"""Real traces: counts, busy time and step spans equal a slow reading with the json module."""

import gzip
import json
import os
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from kineto_documents import SCANNERS, differences
from pinchpoint.importers import load
from pinchpoint.importers.kineto import read
from pinchpoint.trace import DeviceKind
from pinchpoint.trace.intervals import flatten

CORPUS = os.environ.get("PINCHPOINT_CORPUS")
FOLDERS = ("own/traces", "public/traces", "labelled/traces")
FILES = sorted(
    path for folder in FOLDERS for path in (Path(CORPUS) / folder).glob("*.json.gz") if CORPUS
) if CORPUS else []  # fmt: skip
# the labelled ones come from one machine and one version: some of them say as much as all
VARIED = [path for i, path in enumerate(FILES) if "labelled" not in path.parts or i % 8 == 0]

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not FILES, reason="PINCHPOINT_CORPUS is not set"),
]

KERNEL = {"kernel", "Kernel"}
DEVICE = KERNEL | {"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
HOST = {"user_annotation", "cpu_op", "Operator"}
MARKER = re.compile(r"ProfilerStep#\d+")
ROUND = re.compile(
    r"execute_.*context_\d+\(.*generation_\d+\(.*|step\[[A-Z_]+ bs=.*\]"
)  # vLLM, SGLang


def events_of(path):
    with gzip.open(path) as file:
        document = json.loads(file.read(), strict=False, parse_float=Decimal)
    events = document["traceEvents"] if isinstance(document, dict) else document
    return [e for e in events if e.get("ph") == "X" and "dur" in e]


def ns(microseconds):
    return int(Decimal(microseconds) * 1000)


def union_ns(spans):
    total, reach = 0, None
    for start, end in sorted(spans):
        if reach is None or start > reach:
            total += end - start
            reach = end
        elif end > reach:
            total += end - reach
            reach = end
    return total


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_agrees_with_a_slow_reading(path):
    events, trace = events_of(path), load(path)
    device = [e for e in events if e.get("cat") in DEVICE]
    spans = [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in device]
    marked = [e for e in events if e.get("cat") in HOST and MARKER.fullmatch(e["name"])]
    rounds = [e for e in events if e.get("cat") in HOST and ROUND.fullmatch(e["name"])]
    steps = sorted((ns(e["ts"]), ns(e["dur"])) for e in marked or rounds)
    ops = trace.device_ops
    if any(e.get("cat") == "mtia_ccp_events" for e in events):
        assert len(ops) > 0
    elif device:
        kernels = np.isin(ops["kind"], (DeviceKind.KERNEL, DeviceKind.COLLECTIVE))
        assert kernels.sum() == sum(e["cat"] in KERNEL for e in device)
        assert flatten(ops["start_ns"], ops.end_ns).total == union_ns(spans)
        assert ops.end_ns.max() - ops["start_ns"].min() == max(e for _, e in spans) - min(spans)[0]
    else:
        assert ops is None or len(ops) == 0
    assert trace.steps["duration_ns"].tolist() == [duration for _, duration in steps]
    starts = [start for start, _ in steps]
    assert np.diff(trace.steps["start_ns"]).tolist() == np.diff(starts).tolist()


@pytest.mark.skipif("native" not in SCANNERS, reason="no compiled scanner")
@pytest.mark.parametrize("path", VARIED, ids=lambda path: path.name)
def test_both_scanners_read_the_same(path):
    assert differences(read(path, scanner="native"), read(path, scanner="plain")) == []


TRUTH = json.loads((Path(CORPUS) / "own" / "facts.json").read_text()) if FILES else {}
AVERAGES = {name: facts["key_averages"] for name, facts in TRUTH.items() if "key_averages" in facts}


@pytest.mark.parametrize("name", AVERAGES)
def test_device_time_of_operators_agrees_with_torch(name):
    trace = load(Path(CORPUS) / "own" / "traces" / f"{name}.json.gz")
    ops, host = trace.device_ops, trace.host_ops
    linked = ops.known("host_op")
    owners = host["name"][ops["host_op"][linked]]
    spent = np.bincount(owners, ops["duration_ns"][linked], minlength=len(trace.names))
    by_name = dict(zip(trace.names, spent, strict=True))
    for average in AVERAGES[name]:
        if average["name"].startswith("aten::"):
            mine = by_name.get(average["name"], 0) / 1000
            assert mine == pytest.approx(average["self_device_us"], abs=0.1)
