"""Databases of rocprofv3 7, and what rocprof 1 wrote: devices, calls, and which started what."""

import gzip
import json
import sqlite3
from contextlib import closing

import pytest

from pinchpoint.cli import main
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.open import format_of
from pinchpoint.trace import DeviceKind, HostKind, MemoryKind

RUN = "_0a"
SIZES = {f"{what}_size_{a}": n for what, n in (("workgroup", 256), ("grid", 1000)) for a in "xyz"}
TABLES = {
    "string": [
        {"id": 1, "string": "HIP_RUNTIME_API_EXT"},
        {"id": 2, "string": "MARKER_CORE_API"},
        {"id": 3, "string": "hipLaunchKernel"},
        {"id": 4, "string": "step 1"},
        {"id": 5, "string": "MEMORY_COPY_HOST_TO_DEVICE"},
        {"id": 6, "string": "step 2"},
    ],
    "info_thread": [{"id": 70, "pid": 7, "tid": 8}],
    "info_agent": [
        {"id": 0, "type": "CPU", "type_index": 0, "product_name": "Xeon", "name": "Xeon"},
        {"id": 2, "type": "GPU", "type_index": 3, "product_name": "MI300X", "name": "gfx942"},
    ],
    "info_kernel_symbol": [{"id": 9, "kernel_name": "gemm.kd", "display_name": None}],
    "event": [
        {"id": 1, "category_id": 1, "stack_id": 21},
        {"id": 2, "category_id": 2, "stack_id": 20},
        {"id": 3, "category_id": None, "stack_id": 21},
    ],
    "region": [
        {"pid": 70, "tid": 70, "start": 1100, "end": 1200, "name_id": 3, "event_id": 1},
        {"pid": 70, "tid": 70, "start": 1000, "end": 1900, "name_id": 4, "event_id": 2},
        {"pid": 70, "tid": 70, "start": 2000, "end": 2900, "name_id": 6, "event_id": 2},
    ],
    "kernel_dispatch": [
        {"agent_id": 2, "kernel_id": 9, "stream_id": 5, "start": 1300, "end": 1800, "event_id": 3}
        | SIZES
    ],
    "memory_copy": [
        {"name_id": 5, "start": 1810, "end": 1850, "dst_agent_id": 2, "src_agent_id": 0}
        | {"size": 4096, "stream_id": 5, "event_id": None}
    ],
}


def database(path, tables):
    with closing(sqlite3.connect(path)) as made:
        for name, rows in tables.items():
            columns = ", ".join(f'"{column}"' for column in rows[0])
            made.execute(f'CREATE TABLE "{name}" ({columns})')
            for row in rows:
                made.execute(
                    f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(row))})', [*row.values()]
                )
        made.commit()
    return path


def rocpd(path):
    return database(path, {f"rocpd_{name}{RUN}": rows for name, rows in TABLES.items()})


@pytest.mark.parametrize("packed", [False, True])
def test_a_database_has_both_sides(tmp_path, packed):
    path = rocpd(tmp_path / "7_results.db")
    if packed:
        path = tmp_path / "7_results.db.gz"
        path.write_bytes(gzip.compress((tmp_path / "7_results.db").read_bytes()))
    trace = load(path)
    names, ops, calls = trace.names, trace.device_ops, trace.api_calls
    assert trace.source.format == "rocpd"
    assert [(d.number, d.name, d.vendor) for d in trace.devices] == [(3, "MI300X", "amd")]
    assert [names[n] for n in ops["name"]] == ["gemm", "Memcpy HtoD"]
    assert ops["start_ns"].tolist() == [300, 810]  # since the first event
    assert ops["duration_ns"].tolist() == [500, 40]
    assert ops["kind"].tolist() == [DeviceKind.KERNEL, DeviceKind.COPY]
    assert ops["from_memory"][1] == MemoryKind.HOST
    assert ops["bytes"][1] == 4096
    assert names[ops["grid"][0]] == "[4,4,4]"  # 1000 work-items in groups of 256
    assert ops["api_call"][0] == 0
    assert not ops.known("api_call")[1]
    assert [names[n] for n in calls["name"]] == ["hipLaunchKernel"]
    assert trace.threads[0].process == "7"
    assert trace.host_ops["kind"].tolist() == [HostKind.ANNOTATION] * 2
    assert trace.steps["number"].tolist() == [1, 2]


CALL = {"BeginNs": 1100, "EndNs": 1400, "pid": 7, "tid": 8, "Name": "hipMemcpy", "Index": 4}
COPY = {"BeginNs": 1500, "EndNs": 1700, "dev-id": 2, "stream-id": 1}
COPY |= {"Name": "CopyDeviceToHost", "Index": 4}
KERNEL = {"BeginNs": 1600, "EndNs": 1900, "dev-id": 2, "stream-id": 1, "Name": "gemm", "Index": 5}


def old_database(folder):
    return database(folder / "results.db", {"HIP": [CALL], "OPS": [KERNEL], "COPY": [COPY]})


def old_events(folder):
    def event(pid, tid, row):
        args = {key: str(value) for key, value in row.items()}
        at = {"pid": pid, "tid": tid, "ts": str(row["BeginNs"] // 1000), "dur": "0"}
        return {"ph": "X", "name": row["Name"], **at, "args": args}

    flow = {"cat": "DataFlow", "id": 3, "name": "dep"}
    events = [
        {},
        {"args": {"name": "CPU HIP API"}, "ph": "M", "pid": 2, "name": "process_name"},
        event(2, 8, CALL),
        event(1, 0, COPY),
        event(8, 1, KERNEL),
        {"ts": 1, "ph": "s", "pid": 2, "tid": 8, **flow},
        {"ts": 1, "ph": "t", "pid": 1, "tid": 0, **flow},
    ]
    path = folder / "results.json"
    path.write_text(
        '{ "traceEvents":[' + ",".join(json.dumps(e, separators=(",", ":")) for e in events) + "]}"
    )
    return path


def old_events_as_text(folder):
    """Processes of events as text, those of arrows as numbers: rocprof of ROCm 4."""
    path = old_events(folder)
    start, comma, rest = path.read_text().partition(",")
    events = json.loads("[" + rest.removesuffix("]}") + "]")
    for each in events:
        if each["ph"] == "X":
            each |= {"pid": str(each["pid"]), "tid": str(each["tid"])}
    path.write_text(start + comma + json.dumps(events, separators=(",", ":"))[1:-1] + "]}")
    return path


@pytest.mark.parametrize("kept", [old_database, old_events, old_events_as_text])
def test_rocprof_1_has_devices_and_what_started_them(tmp_path, kept):
    path = kept(tmp_path)
    assert format_of(path) == "rocpd"
    trace = load(path)
    ops = trace.device_ops
    assert [trace.names[n] for n in ops["name"]] == ["Memcpy DtoH", "gemm"]
    assert ops["device"].tolist() == [2, 2]
    assert ops["kind"].tolist() == [DeviceKind.COPY, DeviceKind.KERNEL]
    assert ops["start_ns"].tolist() == [400, 500]
    assert ops.known("api_call").tolist() == [True, False]
    assert [trace.names[n] for n in trace.api_calls["name"]] == ["hipMemcpy"]


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({"rocpd_kernel_dispatch_00": [{"id": 1, "start_id": 2}]}, "rocpd convert"),
        ({"runs": [{"id": 1}]}, "nsys export"),
    ],
)
def test_other_databases_say_what_to_do(tmp_path, capsys, tables, says):
    path = database(tmp_path / "results.db", tables)
    assert main(["diagnose", str(path)]) == 2
    assert says in capsys.readouterr().err


def test_numbers_that_are_none_are_one_clear_error(tmp_path):
    rows = {**TABLES, "region": [TABLES["region"][0] | {"start": "soon"}]}
    path = database(tmp_path / "r.db", {f"rocpd_{name}{RUN}": r for name, r in rows.items()})
    with pytest.raises(UnreadableFile):
        load(path)


def test_a_call_that_was_never_ended_is_counted_and_the_rest_is_read(tmp_path):
    whole = TABLES["region"]
    rows = {**TABLES, "region": [*whole, whole[0] | {"end": None}]}
    found = load(database(tmp_path / "r.db", {f"rocpd_{name}{RUN}": r for name, r in rows.items()}))
    assert len(found.api_calls) + len(found.host_ops) == len(whole)
    assert found.device_ops is not None
    assert "times-unsound" in [found.names[int(n)] for n in found.health["fact"]]


ALONE = {"Index": 0, "KernelName": '"gemm.kd"', "gpu-id": 2, "queue-id": 4, "grd": 1000, "wgr": 256}
ALONE |= {"lds": 64, "arch_vgpr": 16, "DispatchNs": 1500, "BeginNs": 1600, "EndNs": 1900}


def alone_as_csv(folder):
    path = folder / "results.csv"
    titles = ",".join(f'"{name}"' for name in ALONE)
    path.write_text(f"{titles}\n{','.join(map(str, ALONE.values()))}\n1,2\n")
    return path


def alone_as_database(folder):
    return database(folder / "results.db", {"KERN": [ALONE, ALONE | {"EndNs": None}]})


@pytest.mark.parametrize("write", [alone_as_csv, alone_as_database])
def test_kernels_that_rocprof_1_wrote_alone(tmp_path, write):
    trace = load(write(tmp_path))
    assert trace.source.format == "rocpd"
    ops = trace.device_ops
    assert trace.text(ops, "name", 0) == "gemm"
    assert (ops["start_ns"].tolist(), ops["duration_ns"].tolist()) == ([0], [300])
    assert (ops["device"].tolist(), ops["stream"].tolist()) == ([2], [4])
    assert (trace.text(ops, "grid", 0), trace.text(ops, "block", 0)) == ("[4,1,1]", "[256,1,1]")
    assert ops["shared_bytes"].tolist() == [64]
