"""What ``pinchpoint formats`` promises: of each format a file, and what is in its trace."""

import gzip
import importlib.util
import json
from pathlib import Path

import pytest

from importers.nsys_export import call, kernel, nvtx, strings, write
from importers.test_ascend import DATABASE, DETAILS
from importers.test_benchmark_results import INSPECTED, LLAMA_BENCH
from importers.test_execution_trace import flat
from importers.test_gaudi_hardware import ENGINES
from importers.test_instruction_trace import TRACED
from importers.test_load_test import VLLM, stats
from importers.test_memory_timeline import ROWS
from importers.test_nsys_stats import GPU_TRACE, SUMMARY
from importers.test_nvprof import TRACED as OF_NVPROF
from importers.test_onnxruntime import event, profile
from importers.test_own_figures import HYPERFINE
from importers.test_perfetto import HOST, QUEUE, TRACKS, note, slice_on
from importers.test_pprof import PROFILE
from importers.test_program_logs import SERVED
from importers.test_rocpd import database, rocpd
from importers.test_rocprofv3 import PROCESS, stamp
from importers.test_run_folder import run_folder
from importers.test_telemetry import BOXES, JETSON, SCRAPE
from importers.test_tensorrt import LAYERS
from kineto_documents import document, launched, op, step
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import formats, load
from pinchpoint.importers.open import PARTS, format_of, reads
from pinchpoint.monitor.telemetry import Sample, TelemetryLog

SCRIPT = Path(__file__).parents[2] / "docs/refresh_formats.py"
DATA = Path(__file__).parents[1] / "data"


def text(folder, name, content):
    path = folder / name
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return [path]


def rocprof(folder):
    marks = [{"key": 11 + n, "value": f"step {n}"} for n in (0, 1)]
    process = PROCESS | {"strings": PROCESS["strings"] | {"marker_api": marks}}
    rows = [stamp(1000 + n, 9000 + n, 11 + n, kind=0, operation=0) for n in (0, 1)]
    process["buffer_records"] = PROCESS["buffer_records"] | {"marker_api": rows}
    return text(folder, "7_results.json", json.dumps({"rocprofiler-sdk-tool": [process]}))


def perfetto(folder):
    steps = [slice_on(HOST, f"step {n}", "user", 100 + n, 9000 + n) for n in (0, 1)]
    launch = slice_on(HOST, "hipLaunchKernel", "hip_api", 2000, 2500, note("corr_id", 5))
    work = slice_on(QUEUE, "gemm", "kernel_dispatch", 3000, 6000, note("corr_id", 5))
    return text(folder, "t.pftrace", TRACKS + b"".join([*steps, launch, work]))


def nsys(folder):
    tables = {
        "StringIds": strings("gemm", "cudaLaunchKernel_v7000"),
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1_500, 2_500, 9)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call(1_000, 1_200, 9, 1)],
        "NVTX_EVENTS": [
            nvtx(500, 3_000, "forward"),
            *(nvtx(n * 4_000 + 400, n * 4_000 + 3_900, f"step {n}") for n in (0, 1)),
        ],
        "GPU_METRICS": [{"timestamp": 900, "typeId": 1, "metricId": 2, "value": 50}],
        "TARGET_INFO_GPU_METRICS": [
            {"typeId": 1, "metricId": 2, "metricName": "SM Active [Throughput %]"}
        ],
    }
    return [write(folder / "small.sqlite", tables)]


def kineto(folder):
    events = [op("aten::mm", 1, 100), *launched("k", 5, 8, 2, 1), step(0, 0, 200)]
    counter = {"ph": "C", "name": "load", "pid": 1, "ts": 5, "args": {"value": 3}}
    return [
        *text(folder, "t.json", document(*events, counter)),
        DATA / "kineto/gpt2_train_stack_memory.json.gz",
        DATA / "xplane/h100_train.trace.json.gz",
    ]


def onnx(folder):
    kernel = event("Kernel", "void cudnn::conv", 1100, 300, stream="7")
    return text(folder, "onnx.json", json.dumps(profile("CUDAExecutionProvider", kernels=[kernel])))


def bench(folder):
    (folder / "session.json").write_text("{}")
    run_folder(folder / "profile")
    return [folder]


def telemetry_log(folder):
    log = TelemetryLog(folder / "telemetry.csv")
    log.add([Sample(10**18, "0", {"power_w": 692.25})])
    log.close()
    return [folder / "telemetry.csv"]


SAMPLES = {
    "Ascend database": lambda f: [database(f / "msprof_0.db", DATABASE)],
    "Ascend kernel table": lambda f: text(f, "kernel_details.csv", DETAILS),
    "bench folder": bench,
    "Gaudi hardware trace": lambda f: text(f, "accel0.csv", ENGINES),
    "JAX memory profile": lambda f: text(f, "memory.prof", PROFILE),
    "kineto": kineto,
    "PyTorch memory snapshot": lambda _: sorted((DATA / "memory").glob("*.pickle.gz"))[:1],
    "load test": lambda f: text(f, "result.json", json.dumps(VLLM)),
    "llama-bench": lambda f: text(f, "bench.json", json.dumps(LLAMA_BENCH)),
    "NCCL inspector": lambda f: text(f, "rank2.log", json.dumps(INSPECTED) + "\n"),
    "ONNX Runtime profile": onnx,
    "TensorRT layers": lambda f: text(f, "profile.json", json.dumps(LAYERS)),
    "TensorFlow stats": lambda f: [stats(f)],
    "memory timeline": lambda f: text(f, "memory.raw.json.gz", json.dumps(ROWS)),
    "ncu": lambda _: sorted((DATA / "ncu").glob("*.csv.gz"))[:1],
    "nsys": nsys,
    "nvprof GPU trace": lambda f: text(f, "gpu.csv", OF_NVPROF),
    "nsys stats CSV": lambda f: [*text(f, "a.csv", GPU_TRACE), *text(f, "b.csv", SUMMARY)],
    "perfetto": perfetto,
    "program log": lambda f: text(f, "server.log", SERVED),
    "table of figures": lambda f: text(f, "bench.json", json.dumps(HYPERFINE)),
    "rocpd": lambda f: [rocpd(f / "7_results.db")],
    "rocprofv3": rocprof,
    "rocprofv3 instructions": lambda f: text(f, "stats_1.csv", TRACED),
    "run folder": lambda f: [run_folder(f)],
    "DCGM exporter text": lambda f: text(f, "metrics.txt", SCRAPE),
    "nvidia-smi dmon": lambda _: [DATA / "nvidia-smi/dmon.log"],
    "tegrastats": lambda f: text(f, "board.log", JETSON),
    "nvidia-smi table": lambda f: text(f, "gpu.log", 2 * BOXES),
    "pinchpoint telemetry": telemetry_log,
    "nvidia-smi CSV": lambda _: [DATA / "nvidia-smi/nvidia-smi.csv"],
    "xplane": lambda _: [DATA / "xplane/h100_train.xplane.pb.gz"],
}
# What they hold is the recording of any format inside.
OF_OTHERS = ("bench folder", "run folder")
# Told by recordings that are not small: kernel counters of CUPTI (tests/importers/kineto).
ELSEWHERE = {"kineto": {"kernel counters"}}


def parts_of(trace):
    return {
        part
        for part, fields in PARTS.items()
        for field in fields
        if (held := getattr(trace, field)) is not None and (field == "snapshot" or len(held))
    }


def test_each_format_has_a_file_here():
    assert {*SAMPLES, "execution trace"} == set(formats())


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_promised_is_read_and_nothing_else(tmp_path, name):
    files = SAMPLES[name](tmp_path)
    assert {format_of(file) for file in files} == {name}
    found = set().union(*(parts_of(load(file)) for file in files))
    promised = set(reads()[name][0])
    assert found <= promised
    if name not in OF_OTHERS:
        assert found == promised - ELSEWHERE.get(name, set())


def test_an_execution_trace_alone_is_refused(tmp_path):
    document = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [flat(4, "aten::mm")]}
    (path,) = text(tmp_path, "et.json", json.dumps(document))
    assert reads()[format_of(path)][0] == ()
    with pytest.raises(UnreadableFile):
        load(path)


def test_the_page_says_the_same():
    spec = importlib.util.spec_from_file_location("refresh_formats", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = script.PAGE.read_text("utf-8")
    assert page == script.text(page), "run: python docs/refresh_formats.py"
