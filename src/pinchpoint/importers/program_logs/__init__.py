"""Logs of programs that print what they do: figures of servers, collectives, steps, benchmarks.

No line says when an operation ran, so no question about a timeline can be asked of a log. What it
prints again and again becomes figures, what it prints at its end stays as it is, and one that ends
with an error says which. Read line by line: memory does not grow with the file. Of a notebook, what
its cells printed is such a log.
"""

import re
from pathlib import Path
from typing import Protocol

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import health_table
from pinchpoint.importers.program_logs._notebook import answer, is_notebook, printed
from pinchpoint.importers.program_logs.collectives import Collectives
from pinchpoint.importers.program_logs.engines import Engines
from pinchpoint.importers.program_logs.operators import TABLE, Operators
from pinchpoint.importers.program_logs.printed_results import PrintedResults
from pinchpoint.importers.program_logs.steps import Steps
from pinchpoint.importers.telemetry._samples import lines
from pinchpoint.regex import regex
from pinchpoint.trace import Names, Source, SummaryTable, Trace

FORMAT = "program log"
FILES = (
    ".log .txt .out .ipynb",
    "vLLM, SGLang, TensorRT-LLM, NCCL (NCCL_DEBUG=INFO), nccl-tests, llama.cpp, trtexec, Megatron,"
    " Lightning, Keras, transformers, torch.profiler (key_averages)",
)
READS: tuple[str, ...] = ("sums",)
NOT_READ = "when anything ran"

# One of these in a log: that it may have figures. What has none is refused, with how it ended.
_SIGNS = regex(
    rb"\b(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[\w+\.py:\d+\]"
    rb"|Avg generation throughput: |Decode batch[,.] #running-req|Prefill batch[,.] #new-seq"
    rb"|\[TRT-LLM\]|\[TensorRT-LLM\]|vLLM API server version|sglang\.launch_server"
    rb"|NCCL INFO |# Collective test starting: |#\s+size\s+count\s+type\s+redop"
    rb"|\| *model +\|.{0,600}\| *t/s *\||\| +Action +\|.{0,600}Num calls"
    rb"|\btokens per second\)|^ggml_\w+_init: |^load_backend: loaded "
    rb"|(?<!=)=+ Serving Benchmark Result =|^= PERFORMANCE OVERVIEW|=== Performance summary ==="
    rb"|\bThroughput: [\d.]+ requests/s, |\bAvg latency: [\d.]+ seconds|'train_runtime': "
    rb"|^Output throughput: [\d.]+ token/s|\d+s [\d.]+ms/step\b|ms pre-?process, [\d.]+ms inference"
    rb"|_per_sec(?:ond)?['\"]?\s?[=:] ?\d|"
    + TABLE
    + rb"|TRITON KERNELS BANDWIDTH INFO|elapsed time per iteration \(ms\): "
    rb"|\bStep Time ?: ?[\d.]+ ?s\b"
    rb"|^iter \d+: loss [\d.]+, time |^Epoch: \[\d+\]\[ *\d+/\d+\]\s+Time |\bdata_time: [\d.]+"
    rb"|^\S{0,80}step +\d+/\d+ .{0,200}\b[\d.]{1,12} ms\b|CurrSamplesPerSec=|\bstep_avg:[\d.]+ms",
    re.MULTILINE,
)
_WHOSE = (
    (regex(rb"vLLM API server version|\d\d:\d\d:\d\d \[\w+\.py:\d+\]|/vllm/"), "vLLM"),
    (regex(rb"sglang"), "SGLang"),
    (regex(rb"^ggml_\w+_init: |^load_backend: |\bllama_(model|context)", re.M), "llama.cpp"),
    (regex(rb"\[TRT-LLM\]|\[TensorRT-LLM\]"), "TensorRT-LLM"),
)
# Not ``[2026-08-02 00:02:22]`` and ``[TensorRT-LLM]``, as lines of logs begin.
_JSON = regex(rb'\s*(?:\{\s*(?:"|\}|\Z)|\[\s*(?:[{\["\]]|-?[\d.eE+-]+\s*(?:,|\]\s*\Z)|\Z)|<)')
_COLOURS = regex(r"\x1b\[[0-9;]*[A-Za-z]")
_ERROR = regex(
    r"(?:^|[\s\]:|])((?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?:: .{1,240})?)\s*$"
    r"|(Segmentation fault.{0,40}|CUDA out of memory.{0,160}|(?:CUDA|ROCm|HIP) error\b.{0,160})"
)
_ERROR_WORDS = ("Error", "Exception", "Interrupt", " fault", "out of memory", " error")
_LONGEST_LINE = 4096  # what is looked for is said earlier; longer lines list arguments
_SHORT = 300  # characters of an error that are said
_HEAD_BYTES = 1 << 16  # a server names itself before it loads its model
_SERVE = "log while requests are answered, or measure: pinchpoint bench serve"
_RECORD = "record one: pinchpoint run COMMAND"


class _Reader(Protocol):
    def line(self, text: str) -> None: ...

    def tables(self) -> tuple[SummaryTable, ...]: ...


def claims(path: Path, head: bytes) -> bool:
    """A line that one of these programs prints, or a notebook, whose cells may show one."""
    if is_notebook(head):
        return True
    return not _JSON.match(head) and _SIGNS.search(head) is not None


def read(path: Path) -> Trace:
    """The figures; UnreadableFile, with how the program ended, where there are none."""
    readers: tuple[_Reader, ...] = (
        Engines(),
        Steps(),
        PrintedResults(),
        Operators(),
        Collectives(),
    )
    error, fatal = "", ""
    notebook = is_notebook(_head(path))
    for line in printed(path) if notebook else lines(path):
        text = line[:_LONGEST_LINE]
        if "\x1b" in text:
            text = _COLOURS.sub("", text)
        for reader in readers:
            reader.line(text)
        if any(word in text for word in _ERROR_WORDS) and (found := _ERROR.search(text)):
            error, fatal = (found[1] or error)[:_SHORT], (found[2] or fatal)[:_SHORT]
    error = fatal or error  # what follows a crash in other processes is of it
    tables = tuple(table for reader in readers for table in reader.tables())
    if not tables and notebook:
        what, hint = answer(path)
        raise UnreadableFile(f"{path}: {what}", hint=hint)
    if not tables:
        raise UnreadableFile(
            f"{path}: {_what(path)}, without one figure of what ran"
            + (f"; its last error: {error}" if error else ""),
            hint=_SERVE if _whose(path) else _RECORD,
        )
    names = Names()
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size),
        summaries=tables + _last_error(error),
        health=health_table([], names),
        names=names.freeze(),
    )


def _last_error(error: str) -> tuple[SummaryTable, ...]:
    return (SummaryTable(("last error in the log",), ((error,),)),) if error else ()


def _what(path: Path) -> str:
    name = _whose(path)
    return f"a log of {name}" if name else "a log"


def _whose(path: Path) -> str:
    head = _head(path)
    return next((name for sign, name in _WHOSE if sign.search(head)), "")


def _head(path: Path) -> bytes:
    with unpacked(path) as plain, plain.open("rb") as file:
        return file.read(_HEAD_BYTES)


__all__ = ["FILES", "FORMAT", "NOT_READ", "READS", "claims", "read"]
