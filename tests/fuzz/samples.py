"""Small recordings of the formats of which no real one is kept, and what mutants of them must do.

Each is a few files, one or two of which a command is given. All commands that read such files must
end as the exit codes say: an answer, or a refusal.
"""

import gzip
import io
import json
import random
import sys
import tarfile
import zipfile
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path

from fuzz.checks import Tally
from fuzz.mutators import as_bytes, damaged, odd_cells, odd_values
from kineto_documents import document, launched, op
from pinchpoint.cli import main
from pinchpoint.run_folder.layout import SCHEMA

INTERNAL_ERROR = 70
BEGIN, END, HOST, QUEUE = 1, 2, 10, 20


@dataclass(frozen=True)
class Sample:
    """Files by name; ``given`` are the words of a command that name them."""

    files: dict[str, bytes]
    given: tuple[str, ...]
    commands: tuple[str, ...] = ("diagnose", "report", "kernels")


def trace() -> str:
    """A step with an operator, a launch and a kernel, on a clock."""
    events = [op("aten::mm", 1, 100, Record_function_id=4), *launched("k", 5, 8, 2, 1)]
    return document(*events, baseTimeNanoseconds=10**18)


def samples() -> dict[str, Sample]:
    """All of them by the name of the format."""
    packed = zipped({"a.json": trace(), "b.json": trace(), "note.txt": "hello"})
    one = zipped({"deep/trace.json": trace()})
    tar = tarred({"rank0.json": trace(), "rank1.json": trace()})
    return {
        "zip": Sample({"t.zip": one}, ("t.zip",)),
        "zip of two": Sample({"t.zip": packed}, ("t.zip",), ("diagnose", "ranks")),
        "tar": Sample({"t.tgz": gzip.compress(tar)}, ("t.tgz",), ("diagnose", "ranks")),
        "plain tar": Sample({"t.tar": tar}, ("t.tar",), ("diagnose", "ranks")),
        "perfetto": Sample({"t.pftrace": perfetto()}, ("t.pftrace",)),
        "rocprofv3": Sample({"r.json": rocprof()}, ("r.json",)),
        "rocprofv3 csv": Sample({"r.csv": ROCPROF.encode()}, ("r.csv",)),
        "ascend table": Sample({"kernel_details.csv": ASCEND.encode()}, ("kernel_details.csv",)),
        "ascend view": Sample({"trace_view.json": ascend_view()}, ("trace_view.json",)),
        "execution trace": Sample(
            {"t.json": trace().encode(), "t_et.json": execution()},
            ("t.json", "t_et.json"),
            ("diagnose",),
        ),
        "memory timeline": Sample(
            {"m.raw.json.gz": gzip.compress(json.dumps(MEMORY).encode())},
            ("m.raw.json.gz",),
            ("memory", "diagnose", "report"),
        ),
        "run folder": Sample(run_folder(), ("run",), ("diagnose", "report", "show", "ranks")),
    }


def one_round(sample: Sample, rng: random.Random, folder: Path, tally: Tally) -> None:
    """One file damaged, and one command over all of them."""
    name = rng.choice(list(sample.files))
    mutant = _mutant(sample.files[name], rng)
    for other, raw in (sample.files | {name: mutant}).items():
        place = folder / other
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(raw)
    command = rng.choice(sample.commands)
    words = [command, *(str(folder / word) for word in sample.given)]
    code, said = ran([*words, *_output(command, folder)])
    tally.counts["read" if code == 0 else "refused"] += 1
    if code not in (0, 2):
        tally.failures.append((f"{command}: {code}: {said}"[:400], mutant, Path(name).name))


def _output(command: str, folder: Path) -> list[str]:
    if command == "report":
        return ["-o", str(folder / "out.html"), "--force"]
    return ["--json"] if command == "diagnose" else []


def ran(words: list[str]) -> tuple[int, str]:
    """A command in this process: its exit code and the last of what it said."""
    out, said, before = io.TextIOWrapper(io.BytesIO()), io.StringIO(), sys.stdout
    sys.stdout = out
    try:
        with redirect_stderr(said):
            return main(words), said.getvalue()[-300:]
    finally:
        sys.stdout = before


def _mutant(raw: bytes, rng: random.Random) -> bytes:
    packed = raw[:2] == b"\x1f\x8b"
    text = gzip.decompress(raw) if packed else raw
    if text[:1] in (b"{", b"[") and rng.random() < 0.7:
        text = as_bytes(odd_values(json.loads(text), rng))
        return gzip.compress(text) if packed else text
    return odd_cells(raw, rng) if raw.count(b",") > 10 > rng.random() * 20 else damaged(raw, rng)


def zipped(members: dict[str, str]) -> bytes:
    """A zip of texts."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return held.getvalue()


def tarred(members: dict[str, str]) -> bytes:
    """A tar of texts."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return held.getvalue()


# ------------------------------------------------------------------------------------------------
# Perfetto, field by field.


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _part(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _packet(*parts: bytes, time: int | None = None) -> bytes:
    at = b"" if time is None else _part(8, time)
    return _part(1, at + _part(10, 1) + b"".join(parts))


def _slice(track: int, name: str, category: str, begin: int, end: int, number: int = 5) -> bytes:
    event = _part(9, BEGIN) + _part(11, track) + _part(23, name) + _part(22, category)
    event += _part(4, _part(10, "corr_id") + _part(3, number))
    ending = _part(9, END) + _part(11, track)
    return _packet(_part(11, event), time=begin) + _packet(_part(11, ending), time=end)


def perfetto() -> bytes:
    """Two steps with a launch and a kernel each."""
    thread = _part(1, HOST) + _part(4, _part(1, 7) + _part(2, 70) + _part(5, "python"))
    queue = _part(1, QUEUE) + _part(2, "COMPUTE AGENT [2] QUEUE [3] (GPU)")
    out = _packet(_part(60, thread)) + _packet(_part(60, queue))
    for step in range(2):
        at = 10_000 * (step + 1)
        out += _slice(HOST, f"ProfilerStep#{step}", "marker_api", at, at + 9000)
        out += _slice(HOST, "hipLaunchKernel", "hip_api", at + 100, at + 500, step + 5)
        out += _slice(QUEUE, "gemm", "kernel_dispatch", at + 1000, at + 6000, step + 5)
    return out


# ------------------------------------------------------------------------------------------------
# The others.


def _stamp(start: int, end: int, number: int) -> dict[str, object]:
    times = {"start_timestamp": start, "end_timestamp": end, "thread_id": 70}
    return times | {"correlation_id": {"internal": number, "external": 0}}


def rocprof() -> bytes:
    """A launch, its kernel, a copy and a range."""
    three = {"x": 256, "y": 1, "z": 1}
    sizes = {"workgroup_size": three, "grid_size": three}
    info = {"agent_id": {"handle": 900}, "queue_id": {"handle": 4}, "kernel_id": 8, **sizes}
    agent = {"id": {"handle": 900}, "type": 2, "name": "gfx950", "logical_node_type_id": 3}
    calls = [{"kind": "HIP", "operations": ["hipInit", "hipLaunchKernel"]}]
    call = {**_stamp(100, 200, 11), "kind": 0, "operation": 1}
    process = {
        "metadata": {"pid": 7},
        "agents": [agent | {"cu_count": 256, "max_engine_clk_fcompute": 2100}],
        "kernel_symbols": [{"kernel_id": 8, "kernel_name": "gemm.kd"}],
        "strings": {"buffer_records": calls, "marker_api": [{"key": 12, "value": "step 0"}]},
        "buffer_records": {
            "kernel_dispatch": [{**_stamp(300, 900, 11), "dispatch_info": info}],
            "memory_copy": [{**_stamp(950, 990, 13), "kind": 0, "operation": 1, "bytes": 4096}],
            "hip_api": [call],
            "marker_api": [{**_stamp(0, 1000, 12), "kind": 0, "operation": 0}],
        },
    }
    return json.dumps({"rocprofiler-sdk-tool": [process]}).encode()


ROCPROF = (
    '"Kind","Agent_Id","Queue_Id","Thread_Id","Kernel_Name","Correlation_Id","Start_Timestamp",'
    '"End_Timestamp","LDS_Block_Size","VGPR_Count","Workgroup_Size_X","Workgroup_Size_Y",'
    '"Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"\n'
    '"KERNEL_DISPATCH","Agent 1",2,69,"add(float*, int)",5,1000,1500,0,32,64,1,1,1024,2,1\n'
    '"KERNEL_DISPATCH","Agent 1",2,69,"mul(float*, int)",6,2000,2500,0,32,64,1,1,1024,2,1\n'
)
ASCEND = (
    "Step Id,Device_id,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),"
    "Wait Time(us),Block Dim\n"
    '1,2,16,MatMulV2,MatMulV2,AI_CORE,"1699529622790614.812\t",607.98,0,48\n'
    "1,2,17,hcom_allReduce_,hcom_allReduce_,HCCL,1699529622791614.812,10,0,N/A\n"
)
_AT = 1_700_000_000_000_000_000
MEMORY = [
    [-1, 1, 1000, 0],
    [_AT + 1000, 2, 4096, 7],
    [_AT + 2000, 3, -4096, 7],
    [_AT + 2000, 3, 4096, 5],
    [_AT + 2500, 2, 8192, 4],
    [_AT + 3000, 4, -8192, 4],
]


def ascend_view() -> bytes:
    """A step, its operator, its launch and its kernel, with the arrow between them."""
    zero, named = 1704161511420000, {1: "Python", 2: "CANN", 3: "Ascend Hardware"}
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": p, "tid": 0, "args": {"name": n}}
        for p, n in named.items()
    ]
    for process, name, at, lasts in (
        (1, "ProfilerStep#0", 0, 1000),
        (1, "aten::mm", 100, 50),
        (2, "Node@launch", 120, 10),
        (3, "MatMulV2", 200, 300),
    ):
        where = {"ph": "X", "name": name, "pid": process, "tid": 1, "args": {}}
        category = {"cat": "cpu_op"} if process == 1 else {}
        events.append({**where, **category, "ts": f"{zero + at}.000", "dur": lasts})
    for ph, process, at in (("s", 2, 120), ("f", 3, 200)):
        arrow = {"cat": "HostToDevice", "id": 2, "name": "HostToDevice", "tid": 1}
        events.append({**arrow, "ph": ph, "pid": process, "ts": f"{zero + at}.000"})
    return json.dumps(events).encode()


def execution() -> bytes:
    """An operator with what it was given."""
    given = {"inputs": [[5, 6, 0, 4, 4, "cuda:0"], 3], "input_shapes": [[2, 3], []]}
    node = {"name": "aten::mm", "id": 9, "rf_id": 4, **given, "input_types": ["Tensor(f)", "Int"]}
    head = {"schema": "1.1.0-chakra.0.0.4", "pid": 7, "start_ts": 1}
    return json.dumps({**head, "nodes": [node]}).encode()


def run_folder() -> dict[str, bytes]:
    """A run with a recording, telemetry, and samples of its threads and of a worker."""
    seen = {"stacks": [[0, 5]]}
    thread = {"name": "MainThread", "main": True, "looks": 9, "cpu_ns": 10**9, **seen}
    far = {"step": 3, "ns": 10**9, "excess_ns": 10**8, "wait_ns": 5, "looks": 3, "seen": [[0, 3]]}
    steps = {"typical_ns": 10**7, "count": 100, "total_ns": 2 * 10**9, "far": 1, "events": [far]}
    sampled = {
        "frames": [["train.py", 3, "main"], ["torch/a.py", 7, "f"]],
        "stacks": [[0, 1]],
        "sampled": {"every_s": 0.01, "seconds": 10.0, "looks": 9, "threads": [thread]},
        "steps": {**steps, "usual": [[0, 5]]},
        "cost_ns": 100,
    }
    process = {"pid": 7, "rank": 0, "recordings": [{"file": "t.json"}], "device": {"uuid": "GPU-a"}}
    documents: dict[str, object] = {
        "run.json": {"schema": SCHEMA, "command": ["python", "t.py"], "status": "ended"},
        "processes/rank0.json": process,
        "env.json": {"gpu": {"devices": [{"uuid": "GPU-a"}], "count": 1}},
        "samples/rank00000.7.json": sampled,
        "samples/worker.8.json": {**sampled, "worker": 0},
    }
    files = {f"run/{name}": json.dumps(content).encode() for name, content in documents.items()}
    files["run/traces/t.json"] = trace().encode()
    files["run/telemetry.csv"] = (
        b"unix_ns,device,power_w,cpu_ratio\n1000000000000001000,0,100,0.5\n"
    )
    return files
