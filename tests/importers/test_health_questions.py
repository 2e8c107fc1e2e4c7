"""Every importer asks the same questions of a file: a file for each bad answer, and the page."""

import importlib.util
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import pinchpoint as pp
from importers import nsys_export as nsys
from kineto_documents import call, document, event, kernel, launched, op
from pinchpoint.importers.health import FACTS
from xplane_messages import event as xevent
from xplane_messages import message, meta

SCRIPT = Path(__file__).parents[2] / "docs/refresh_health.py"
H100 = [{"id": 0, "name": "NVIDIA H100"}]
US = 1_000_000  # picoseconds


def page():
    spec = importlib.util.spec_from_file_location("refresh_health", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def facts(path):
    trace = pp.load(path)
    rows = trace.health
    return {trace.text(rows, "fact", i): int(rows["count"][i]) for i in range(len(rows))}


# ------------------------------------------------------------------------------------------------
# Chrome traces.

GOOD = [op("aten::mm", 0, 100), *launched("k", 5, 8, 2, 1), *launched("k", 15, 18, 2, 2)]
OTHER = {"place": (11, 11)}


def chrome(*events, **frame):
    def write(folder):
        (folder / "t.json").write_text(document(*events, **{"deviceProperties": H100} | frame))
        return folder / "t.json"

    return write


def named(name, *events):
    return [{"ph": "M", "name": "process_name", "pid": 30, "args": {"name": name}}, *events]


def cut(folder):
    (folder / "t.json").write_text(document(*GOOD, deviceProperties=H100)[:-40])
    return folder / "t.json"


def broken(folder):
    text = document(*GOOD, deviceProperties=H100)
    torn = text.replace('{"ph"', '{"ph": "X", "name": "say "hi" x"}, {"ph"', 1)
    (folder / "t.json").write_text(torn)
    return folder / "t.json"


NCCL = launched("ncclDevKernel_AllReduce", 25, 28, 2, 3)
STOPPED = ["CUPTI stopped early? = 1"]
CHROME = {
    "phases-unread": chrome(*GOOD, {"ph": "b", "ts": 1, "name": "x"}),
    "device-unread": chrome(
        *named(
            "Ascend Hardware", op("aten::mm", 0, 9), event("EVENT_WAIT", "", 5, 2, place=(30, 2))
        )
    ),
    "cpu-only": chrome(op("aten::mm", 0, 100)),
    "device-left-out": chrome(op("aten::cudnn_convolution", 0, 100)),
    "kernels-not-recorded": chrome(*GOOD[:2]),
    "no-host-activity": chrome(*GOOD[1:]),
    "cut-off": cut,
    "broken-text": broken,
    "events-capped": chrome(*GOOD),  # with the number of events that some writers stop at
    "stopped-early": chrome(*GOOD, INFO=STOPPED),
    "launches-lost": chrome(*GOOD, call("cudaLaunchKernel", 30, 1, 9)),
    "graph-captured": chrome(
        call("cudaStreamBeginCapture", 20, 1, 8),
        *(call("cudaLaunchKernel", 30 + n, 1, 10 + n) for n in range(10)),
        call("cudaStreamEndCapture", 50, 1, 9),
        *launched("k", 60, 65, 2, 30),
    ),
    "launches-missing": chrome(*GOOD, kernel("k", 40, 1, 99)),
    "links-missing": chrome(
        op("aten::mm", 0, 90), *launched("k", 5, 8, 2, 0), *launched("k", 15, 18, 2, 0)
    ),
    "calls-missing": chrome(op("aten::mm", 0, 100), kernel("k", 40, 1, 99)),
    "starts-before-launch": chrome(*GOOD, *launched("k", 30, 29, 2, 3)),
    "clocks-disagree": chrome(*GOOD, *launched("k", 60, 30, 2, 3)),
    "streams-overlap": chrome(*GOOD, *launched("k", 16, 19, 2, 3)),
    "times-missing": chrome(*GOOD, op("x", None, 5)),
    "durations-negative": chrome(*GOOD, op("x", 5, -5)),
    "processes-several": chrome(
        *GOOD, call("cudaLaunchKernel", 30, 1, 3, **OTHER), kernel("k", 40, 1, 3)
    ),
    "devices-several": chrome(
        *GOOD, call("cudaLaunchKernel", 30, 1, 3), kernel("k", 40, 1, 3, place=(1, 7), device=1)
    ),
    "no-device-properties": chrome(*GOOD, deviceProperties=[]),
    "rank-unknown": chrome(*GOOD, *NCCL),
}

# ------------------------------------------------------------------------------------------------
# Exports of nsys: texts, one kernel after its launch.

TEXTS = ("gemm", "cudaLaunchKernel_v7000", "ncclDevKernel_AllReduce")


def export(calls=(), kernels=(), **more):
    def write(folder):
        tables = {
            "StringIds": nsys.strings(*TEXTS),
            "CUPTI_ACTIVITY_KIND_KERNEL": list(kernels),
            "CUPTI_ACTIVITY_KIND_RUNTIME": list(calls),
        }
        tables |= more
        return nsys.write(folder / "x.sqlite", {k: v for k, v in tables.items() if v})

    return write


def emptied(folder):
    """An export whose table of kernels lost its rows."""
    tables = {
        "StringIds": nsys.strings(*TEXTS),
        "CUPTI_ACTIVITY_KIND_KERNEL": [nsys.kernel(1, 2, 3)],
    }
    return nsys.write(folder / "x.sqlite", tables, "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")


US_NS = 1000
CALL, RUN = nsys.call(10 * US_NS, 11 * US_NS, 5, 1), nsys.kernel(20 * US_NS, 30 * US_NS, 5)
SECOND = nsys.call(12 * US_NS, 13 * US_NS, 6, 1)
WARNED = [{"severity": 3, "text": "Some events were lost"}]
NSYS = {
    "tables-unread": export([CALL], [RUN], CUPTI_ACTIVITY_KIND_KERNEL_V9=[RUN]),
    "names-missing": export([CALL], [RUN], StringIds=()),
    "no-device-activity": export([CALL]),
    "tables-empty": emptied,
    "launches-lost": export([CALL, SECOND, nsys.call(14 * US_NS, 15 * US_NS, 7, 1)],
                            [RUN, nsys.kernel(40 * US_NS, 41 * US_NS, 6)]),
    "graph-captured": export(
        [
            nsys.call(10 * US_NS, 11 * US_NS, 5, 2),
            *(nsys.call((12 + n) * US_NS, (13 + n) * US_NS, 6 + n, 1) for n in range(3)),
            nsys.call(20 * US_NS, 21 * US_NS, 30, 3),
        ],
        [nsys.kernel(40 * US_NS, 41 * US_NS, 31)],
        StringIds=nsys.strings(
            "gemm", "cudaLaunchKernel_v7000", "cudaStreamBeginCapture_v10000",
            "cudaStreamEndCapture_v10000",
        ),
    ),
    "launches-missing": export([CALL], [RUN, nsys.kernel(40 * US_NS, 41 * US_NS, 9)]),
    "links-missing": export(
        [CALL, SECOND, nsys.call(14 * US_NS, 15 * US_NS, 7, 1)],
        [nsys.kernel((40 + i) * US_NS, (41 + i) * US_NS, 0) for i in range(3)],
    ),
    "calls-missing": export((), [RUN]),
    "clocks-disagree": export([nsys.call(90 * US_NS, 91 * US_NS, 5, 1)], [RUN]),
    "streams-overlap": export([CALL, SECOND], [RUN, nsys.kernel(25 * US_NS, 35 * US_NS, 6)]),
    "times-unsound": export([CALL], [RUN, nsys.kernel(50 * US_NS, 40 * US_NS, 8)]),
    "profiler-warning": export([CALL], [RUN], DIAGNOSTIC_EVENT=WARNED),
    "processes-several": export(
        [CALL, nsys.call(12 * US_NS, 13 * US_NS, 6, 1, globalTid=nsys.tid(nsys.PID_B))],
        [RUN, nsys.kernel(40 * US_NS, 41 * US_NS, 6, globalPid=nsys.pid(nsys.PID_B))],
    ),
    "devices-several": export(
        [CALL, SECOND], [RUN, nsys.kernel(40 * US_NS, 41 * US_NS, 6, deviceId=1)]
    ),
    "no-device-properties": export([CALL], [RUN]),
    "rank-unknown": export([CALL], [RUN | {"demangledName": 2, "shortName": 2}]),
}  # fmt: skip

# ------------------------------------------------------------------------------------------------
# Tables of nsys stats.

GPU_HEAD = "Start (ns),Duration (ns),CorrId,Device,Strm,Name"
API_HEAD = "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid"


def tables(gpu, api):
    def write(folder):
        lines = [GPU_HEAD, *gpu, "", *([API_HEAD, *api] if api else [])]
        (folder / "x.csv").write_text("\n".join(lines) + "\n")
        return folder / "x.csv"

    return write


K, L = "20000,10000,5,A10 (0),7,gemm", "10000,1000,cudaLaunchKernel,0,5,77,78"
CSV = {
    "calls-missing": tables([K], []),
    "rows-cut": tables([K, "1,2"], [L]),
    "launches-lost": tables(
        [K, "40000,9,6,A10 (0),7,gemm"],
        [L, "12000,9,cudaLaunchKernel,0,6,77,78", "13000,9,cudaLaunchKernel,0,7,77,78"],
    ),
    "launches-missing": tables([K, "50000,9,9,A10 (0),7,gemm"], [L]),
    "clocks-disagree": tables([K], ["90000,9,cudaLaunchKernel,0,5,77,78"]),
    "streams-overlap": tables([K, "25000,10000,5,A10 (0),7,gemm"], [L]),
    "times-missing": tables([K, "?,9,5,A10 (0),7,gemm"], [L]),
    "processes-several": tables(
        [K, "40000,9,6,A10 (0),7,gemm"], [L, "12000,9,cudaLaunchKernel,0,6,88,88"]
    ),
    "devices-several": tables(
        [K, "40000,9,6,A10 (1),7,gemm"], [L, "12000,9,cudaLaunchKernel,0,6,77,78"]
    ),
}

# ------------------------------------------------------------------------------------------------
# XPlane files.


def correlated(number):
    return message((1, 2), (3, number))


def line(number, name, *events):
    return (3, message((1, number), (2, name), (3, 1000), *events))


def host(*launches):
    """A range, and launches: (start in µs, correlation)."""
    rows = [xevent(2, at * US, US, correlated(n)) for at, n in launches]
    names = (meta(4, 1, "train"), meta(4, 2, "cuLaunchKernel"), meta(5, 2, "correlation_id"))
    return (1, message((2, "/host:CPU"), *names, line(9, "python", xevent(1, 0, 99 * US), *rows)))


def gpu(number, *runs, name="fusion"):
    """Operations of stream 14: (start in µs, correlation), each of 2 µs."""
    rows = [xevent(1, at * US, 2 * US, correlated(n)) for at, n in runs]
    names = (meta(4, 1, name), meta(5, 2, "correlation_id"))
    return (1, message((2, f"/device:GPU:{number}"), *names, line(14, "Stream #14", *rows)))


def planes(*of):
    def write(folder):
        (folder / "x.xplane.pb").write_bytes(message(*of))
        return folder / "x.xplane.pb"

    return write


XPLANE = {
    "cpu-only": planes(host()),
    "no-device-activity": planes(host(), gpu(0)),
    "no-host-activity": planes(gpu(0, (4, 5))),
    "launches-lost": planes(host((1, 5), (2, 6), (3, 7)), gpu(0, (4, 5), (8, 6))),
    "launches-missing": planes(host((1, 5)), gpu(0, (4, 5), (8, 9))),
    "calls-missing": planes(host(), gpu(0, (4, 5))),
    "clocks-disagree": planes(host((50, 5)), gpu(0, (4, 5))),
    "streams-overlap": planes(host((1, 5), (2, 6)), gpu(0, (4, 5), (5, 6))),
    "devices-several": planes(host((1, 5), (2, 6)), gpu(0, (4, 5)), gpu(1, (4, 6))),
    "no-device-properties": planes(host((1, 5)), gpu(0, (4, 5))),
    "rank-unknown": planes(host((1, 5)), gpu(0, (4, 5), name="ncclDevKernel_AllReduce")),
}

# ------------------------------------------------------------------------------------------------
# Databases of AMD's profiler: texts, an event for each call and each kernel.

ROCPD = {
    "string": ("id string", (1, "hipLaunchKernel")),
    "info_thread": ("id pid tid", (70, 7, 8), (71, 9, 9)),
    "info_agent": (
        "id type type_index product_name name", (2, "GPU", 0, "MI300X", "gfx942"),
        (3, "GPU", 1, "MI300X", "gfx942"),
    ),
    "info_kernel_symbol": (
        "id kernel_name display_name", (9, "gemm.kd", None),
        (8, "ncclDevKernel_AllReduce", None),
    ),
    "event": ("id category_id stack_id", *((number, None, number) for number in range(30))),
    "memory_copy": ("name_id start end dst_agent_id src_agent_id size stream_id event_id",),
}  # fmt: skip
SIZES = " ".join(f"{what}_size_{a}" for what in ("workgroup", "grid") for a in "xyz")


def rocpd(calls=((70, 10, 5),), kernels=((2, 20, 5, 9),), without=()):
    """Calls as (thread, start, event), kernels as (agent, start, event, symbol), times in µs; a
    call takes 1 µs, a kernel 10."""

    def write(folder):
        tables = ROCPD | {
            "region": ("pid tid start end name_id event_id", *(
                (thread, thread, at * 1000, at * 1000 + 1000, 1, event)
                for thread, at, event in calls
            )),
            "kernel_dispatch": (
                f"agent_id kernel_id stream_id start end event_id {SIZES}", *(
                    (agent, symbol, 5, at * 1000, at * 1000 + 10_000, event, *(1,) * 6)
                    for agent, at, event, symbol in kernels
                )),
        }  # fmt: skip
        with closing(sqlite3.connect(folder / "x.db")) as made:
            for name, (columns, *rows) in tables.items():
                if name in without:
                    continue
                listed = ", ".join(f'"{c}"' for c in columns.split())
                made.execute(f'CREATE TABLE "rocpd_{name}_0a" ({listed})')
                marks = ", ".join("?" * len(columns.split()))
                made.executemany(f'INSERT INTO "rocpd_{name}_0a" VALUES ({marks})', rows)
            made.commit()
        return folder / "x.db"

    return write


def lines_of(name, *lines):
    def write(folder):
        (folder / name).write_text("\n".join(lines) + "\n")
        return folder / name

    return write


AMD_HEAD = "Kind,Agent_Id,Kernel_Name,Correlation_Id,Start_Timestamp,End_Timestamp"
AMD_ROW = "KERNEL_DISPATCH,1,gemm,5,20,30"
OK, THREE = (70, 10, 5), [(70, 10, 5), (70, 12, 6), (70, 14, 7)]
ROCM = {
    "tables-unread": rocpd(without=("event",)),
    "names-missing": rocpd(without=("info_kernel_symbol",)),
    "no-device-activity": rocpd(kernels=()),
    "rows-cut": lines_of("x_kernel_trace.csv", AMD_HEAD, AMD_ROW, "KERNEL_DISPATCH,1"),
    "launches-lost": rocpd(THREE, [(2, 20, 5, 9), (2, 40, 6, 9)]),
    "launches-missing": rocpd([OK], [(2, 20, 5, 9), (2, 40, 6, 9)]),
    "links-missing": rocpd(THREE, [(2, 20 * n, 0, 9) for n in (1, 2, 3)]),
    "calls-missing": rocpd([]),
    "clocks-disagree": rocpd([(70, 90, 5)]),
    "streams-overlap": rocpd(THREE[:2], [(2, 20, 5, 9), (2, 25, 6, 9)]),
    "times-unsound": lines_of(
        "x_kernel_trace.csv", AMD_HEAD, AMD_ROW, AMD_ROW + "0", "K,1,k,6,?,9"
    ),
    "processes-several": rocpd([OK, (71, 12, 6)], [(2, 20, 5, 9), (2, 40, 6, 9)]),
    "devices-several": rocpd(THREE[:2], [(2, 20, 5, 9), (3, 20, 6, 9)]),
    "no-device-properties": lines_of("x_kernel_trace.csv", AMD_HEAD, AMD_ROW),
    "rank-unknown": rocpd(kernels=[(2, 20, 5, 8)]),
}

NPU_HEAD = "Device_id,Name,Type,Start Time(us),Duration(us),Stream ID"
ASCEND = {
    "calls-missing": lines_of("k.csv", NPU_HEAD, "0,MatMul1,MatMul,20,10,1"),
    "rows-cut": lines_of("k.csv", NPU_HEAD, "0,MatMul1,MatMul,20,10,1", "0,MatMul1"),
    "streams-overlap": lines_of(
        "k.csv", NPU_HEAD, "0,MatMul1,MatMul,20,10,1", "0,MatMul2,MatMul,25,10,1"
    ),
    "times-unsound": lines_of("k.csv", NPU_HEAD, "0,MatMul1,MatMul,20,10,1", "0,M,M,?,10,1"),
    "rank-unknown": lines_of("k.csv", NPU_HEAD, "0,hcom_allReduce_,hcom_allReduce_,20,10,1"),
}

# ------------------------------------------------------------------------------------------------
# Pages of ncu.

NCU_HEAD = '"ID","Process ID","Kernel Name","Device","sm__cycles_active.avg"'


def profiled(*rows):
    def write(folder):
        text = "\n".join((NCU_HEAD, '"","","","","cycle"', *rows)) + "\n"
        (folder / "x.csv").write_text(text)
        return folder / "x.csv"

    return write


NCU = {
    "counters-missing": profiled('"0","1","k","0","5"', '"1","1","k","0",""'),
    "rows-cut": profiled('"0","1","k","0","5"', '"1","1"'),
    "processes-several": profiled('"0","1","k","0","5"', '"1","2","k","0","6"'),
    "devices-several": profiled('"0","1","k","0","5"', '"1","1","k","1","6"'),
}

FILES = {
    "trace": CHROME, "nsys": NSYS, "csv": CSV, "xplane": XPLANE, "rocm": ROCM, "ascend": ASCEND,
    "ncu": NCU,
}  # fmt: skip
ALL = [(name, fact) for name, files in FILES.items() for fact in files]


@pytest.mark.parametrize(("name", "fact"), ALL)
def test_a_bad_answer_is_said(tmp_path, monkeypatch, name, fact):
    if fact == "events-capped":
        monkeypatch.setattr("pinchpoint.importers.kineto.health.MOST_WRITTEN", len(GOOD))
    assert fact in facts(FILES[name][fact](tmp_path))


def test_what_is_wrong_with_one_file_is_not_said_of_a_good_one(tmp_path):
    assert facts(chrome(*GOOD)(tmp_path)) == {}
    assert facts(tables([K], [L])(tmp_path)) == {}
    assert facts(profiled('"0","1","k","0","5"')(tmp_path)) == {}
    assert facts(rocpd()(tmp_path)) == {}
    assert set(facts(planes(host((1, 5)), gpu(0, (4, 5)))(tmp_path))) == {"no-device-properties"}
    assert set(facts(export([CALL], [RUN])(tmp_path))) == {"no-device-properties"}


def test_every_question_is_put_to_every_importer():
    questions = page().QUESTIONS
    assert all(set(answers) == set(FILES) for answers in questions.values())
    promised = {
        (name, fact)
        for answers in questions.values()
        for name, said in answers.items()
        if not isinstance(said, str)
        for fact in said
    }
    assert promised == set(ALL)
    assert {fact for _, fact in promised} <= set(FACTS)


def test_the_page_is_up_to_date():
    module = page()
    assert module.PAGE.read_text("utf-8") == module.text()
