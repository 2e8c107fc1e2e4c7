"""What NVIDIA's own expert rules report of an export, ours hold and say as well."""

import gzip
import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import pinchpoint as pp
from importers import nsys_expert_rules as nvidia
from importers.nsys_export import call, copy, kernel, nvtx, strings, write
from pinchpoint.analysis.host.launches import waits
from pinchpoint.analysis.time.gaps import gaps
from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.trace import ApiKind, DeviceKind, MemoryKind
from pinchpoint.trace import intervals as iv

CORPUS = os.environ.get("PINCHPOINT_CORPUS")
FILES = sorted(Path(CORPUS, "public/nsight").glob("*.sqlite.gz")) if CORPUS else []

NAMES = strings(
    "gemm", "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaMemcpy_v3020",
    "cudaMemset_v3020", "cudaDeviceSynchronize_v3020", "step",
)  # fmt: skip
GEMM, LAUNCH, COPY_ASYNC, COPY, MEMSET, SYNC, STEP = range(7)
US = 1_000
MS = 1_000_000
STEPS, STEP_MS, PAUSE_MS = 8, 90, 600


def program(path):
    """Steps that make each of the mistakes, and a pause in the middle.

    A step: 20 ms of asynchronous copy from pageable memory, 30 ms of kernels, a wait for the
    device, a copy to pageable memory that waits, a memset of managed memory; then 20 ms of host.
    """
    kernels, copies, memsets, calls, ranges = [], [], [], [], []

    def called(name, start, end, *, waits=True):
        """An operation and its call; the start, end and correlation of the operation."""
        number = len(calls) + 1
        calls.append(call(start - 10 * US, end + 5 * US if waits else start, number, name))
        return start, end, number

    for step in range(STEPS):
        at = step * STEP_MS * MS + (PAUSE_MS * MS if step >= STEPS // 2 else 0)
        ranges.append(nvtx(at, at + STEP_MS * MS, f"step {step}"))
        to_device = called(COPY_ASYNC, at + MS, at + 21 * MS)
        copies.append(copy(*to_device, 1, srcKind=0, dstKind=2, bytes=64 << 20))
        for begin in (at + 22 * MS, at + 32 * MS, at + 42 * MS):
            kernels.append(kernel(*called(LAUNCH, begin, begin + 10 * MS, waits=False), GEMM))
        calls.append(call(at + 43 * MS, at + 52 * MS + 20 * US, len(calls) + 1, SYNC))
        to_host = called(COPY, at + 53 * MS, at + 63 * MS)
        copies.append(copy(*to_host, 2, srcKind=2, dstKind=0, bytes=32 << 20))
        cleared = copy(*called(MEMSET, at + 64 * MS, at + 66 * MS), 0, bytes=1 << 20)
        memsets.append(cleared | {"memKind": 4, "value": 0})
    return write(
        path,
        {
            "StringIds": NAMES,
            "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
            "CUPTI_ACTIVITY_KIND_MEMCPY": copies,
            "CUPTI_ACTIVITY_KIND_MEMSET": memsets,
            "CUPTI_ACTIVITY_KIND_RUNTIME": calls,
            "NVTX_EVENTS": ranges,
        },
    )


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    path = program(tmp_path_factory.mktemp("nsys") / "planted.sqlite")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as export:
        yield pp.load(path), export
    export.close()


@pytest.fixture(scope="module", params=FILES, ids=lambda p: p.name)
def real(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("nsys") / "real.sqlite"
    path.write_bytes(gzip.decompress(request.param.read_bytes()))
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as export:
        yield pp.load(request.param), export
    export.close()


def spans(table, rows, origin_ns):
    """Rows of a table as start and end in the time of the file."""
    start, end = table["start_ns"][rows], table.end_ns[rows]
    return sorted(zip((start + origin_ns).tolist(), (end + origin_ns).tolist(), strict=True))


def origin(trace, export):
    """What the importer took off the times of the file: its earliest event."""
    ops, first = trace.device_ops, []
    for table in ("KERNEL", "MEMCPY", "MEMSET"):
        name = f"CUPTI_ACTIVITY_KIND_{table}"
        try:
            first += export.execute(f"SELECT min(start) FROM {name}").fetchone()
        except sqlite3.OperationalError:
            continue
    return min(x for x in first if x is not None) - int(ops["start_ns"].min())


def assert_same_rows(trace, export):
    """Each row that NVIDIA's rules list stands in our tables with what makes it one."""
    ops, calls = trace.device_ops, trace.api_calls
    at = origin(trace, export)
    linked = ops.known("api_call")
    names = np.array([trace.text(calls, "name", i) for i in range(len(calls))] or [""])
    called = np.where(linked, names[ops.filled("api_call", 0)], "")
    is_async = np.char.endswith(called, "Async")
    copies, memsets = ops["kind"] == DeviceKind.COPY, ops["kind"] == DeviceKind.MEMSET
    pageable = (ops.filled("from_memory", 0) == MemoryKind.PAGEABLE) | (
        ops.filled("to_memory", 0) == MemoryKind.PAGEABLE
    )
    assert spans(ops, copies & pageable & is_async, at) == nvidia.pageable_copies(export)
    waiting = copies & linked & ~is_async & np.char.startswith(called, "cudaMemcpy")
    assert set(nvidia.synchronous_copies(export)) <= set(spans(ops, waiting, at))
    host_side = np.isin(ops.filled("to_memory", 0), (MemoryKind.PINNED, MemoryKind.UNIFIED))
    cleared = memsets & host_side & linked & ~is_async
    assert spans(ops, cleared, at) == nvidia.synchronous_memsets(export)
    sync = np.isin(calls["kind"], (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM))
    assert spans(calls, sync, at) == nvidia.synchronising_calls(export)


def assert_idle_is_explained(trace, export):
    """Where all devices are idle by their rules, our causes of idle time add up to as much."""
    at = origin(trace, export)
    pieces = gaps(trace)
    ours = iv.flatten(pieces.start_ns + at, pieces.end_ns + at)
    for rows, least in ((nvidia.gaps(export), 1.0), (nvidia.idle_chunks(export), 0.5)):
        first, *others = rows.values()
        for start, end in set(first).intersection(*others):
            idle = int(np.diff(iv.covered_before(ours, np.array([start, end])))[0])
            assert idle >= least * (end - start)


def test_they_all_report_the_planted_mistakes(planted):
    _, export = planted
    assert len(nvidia.pageable_copies(export)) == STEPS
    assert len(nvidia.synchronous_copies(export)) == STEPS
    assert len(nvidia.synchronous_memsets(export)) == STEPS
    assert len(nvidia.synchronising_calls(export)) == STEPS
    assert [len(rows) for rows in nvidia.gaps(export).values()] == [1]
    assert len(nvidia.idle_chunks(export)[0]) >= 10


def test_our_tables_hold_the_same_rows(planted):
    assert_same_rows(*planted)


def test_our_causes_explain_their_idle_time(planted):
    assert_idle_is_explained(*planted)


def test_the_host_waits_in_each_of_their_calls(planted):
    """Copies and memsets that wait, and synchronisations: four waiting calls a step."""
    assert len(waits(planted[0]).row) == 4 * STEPS


def test_our_rules_name_the_copy_and_what_it_costs(planted):
    found = {ranked.id: ranked for ranked in diagnose(planted[0]).found}
    assert "pageable-h2d" in found
    assert found["pageable-h2d"].finding.cost_ns_per_step == pytest.approx(20 * MS, rel=0.01)


@pytest.mark.corpus
@pytest.mark.skipif(not FILES, reason="PINCHPOINT_CORPUS has no nsys exports")
def test_real_exports(real):
    trace, export = real
    if trace.device_ops is None or not len(trace.device_ops):
        pytest.skip("no device operation in it")
    if trace.api_calls is not None and len(trace.api_calls):
        assert_same_rows(trace, export)
    assert_idle_is_explained(trace, export)
