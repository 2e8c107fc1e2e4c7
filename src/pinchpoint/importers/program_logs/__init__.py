"""Logs of programs that print what they do: figures of servers, collectives, steps, benchmarks.

Lines of programs that are known have their meaning from here; what those leave goes to readers of
any program's words: bars, tables, figures with units.

No line says when an operation ran, so no question about a timeline can be asked of a log. What it
prints again and again becomes figures, what it prints at its end stays as it is, and one that ends
with an error says which. Read line by line: memory does not grow with the file. Of a notebook, what
its cells printed is such a log.
"""

import re
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.kinds_of_text import kind_of_text, said_by_a_line
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import health_table
from pinchpoint.importers.program_logs._figures import said_table
from pinchpoint.importers.program_logs._notebook import answer, is_notebook, printed
from pinchpoint.importers.program_logs.operators import TABLE, Operators
from pinchpoint.importers.telemetry._samples import lines
from pinchpoint.regex import regex
from pinchpoint.trace import Names, Source, Trace

FORMAT = "program log"
FILES = (
    ".log .txt .out .ipynb",
    "vLLM, SGLang, TensorRT-LLM, NCCL (NCCL_DEBUG=INFO), nccl-tests, llama.cpp, trtexec, Megatron,"
    " Lightning, Keras, transformers, torch.profiler (key_averages), cProfile, line_profiler,"
    " MLPerf, nvbandwidth, benchncnn, and any program that prints figures under names",
)
READS: tuple[str, ...] = ("sums",)
NOT_READ = "when anything ran"

# One of these in a log: that it may have figures. What has none is refused, with how it ended.
_SIGNS = regex(
    rb"\b(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[\w+\.py:\d+\]"
    rb"|Avg generation throughput: |Decode batch[,.] #running-req|Prefill batch[,.] #new-seq"
    rb"|\[TRT-LLM\]|\[TensorRT-LLM\]|vLLM API server version|sglang\.launch_server"
    rb"|NCCL INFO |# Collective test starting: |#\s+size\s+count\s+type\s+redop"
    rb"|\| *model +\|.{0,600}\| *t/s *\||(?:\| +|^)Action\s{1,80}\|.{0,600}Num calls"
    rb"|\btokens per second\)|^ggml_\w+_init: |^load_backend: loaded "
    rb"|(?<!=)=+ Serving Benchmark Result =|^= PERFORMANCE OVERVIEW|=== Performance summary ==="
    rb"|\bThroughput: [\d.]+ requests/s, |\bAvg latency: [\d.]+ seconds|'train_runtime': "
    rb"|^Output throughput: [\d.]+ token/s|\ds [\d.]+ms/step\b|ms pre-?process, [\d.]+ms inference"
    rb"|_per_sec(?:ond)?['\"]?\s?[=:] ?\d|"
    + TABLE
    + rb"|TRITON KERNELS BANDWIDTH INFO|elapsed time per iteration \(ms\): "
    rb"|\bStep Time ?: ?[\d.]+ ?s\b"
    rb"|^iter \d+: loss [\d.]+, time |^Epoch: \[\d+\]\[ *\d+/\d+\]\s+Time |\bdata_time: [\d.]+"
    rb"|^\S{0,80}step +\d+/\d+ .{0,200}\b[\d.]{1,12} ms\b|CurrSamplesPerSec=|\bstep_avg:[\d.]+ms",
    re.MULTILINE,
)
_WHOSE = (
    (
        regex(rb"vLLM API server version|\d:\d\d(?:\.\d+)? \[\w+\.py:\d+\]|File \"[^\"\n]*/vllm/"),
        "vLLM",
    ),
    (regex(rb"sglang"), "SGLang"),
    (regex(rb"^ggml_\w+_init: |^load_backend: |\bllama_(model|context)", re.M), "llama.cpp"),
    (regex(rb"\[TRT-LLM\]|\[TensorRT-LLM\]"), "TensorRT-LLM"),
)
# Not ``[2026-08-02 00:02:22]`` and ``[TensorRT-LLM]``, as lines of logs begin.
_JSON = regex(rb'\s*(?:\{\s*(?:"|\}|\Z)|\[\s*(?:[{\["\]]|-?[\d.eE+-]+\s*(?:,|\]\s*\Z)|\Z)|<)')
_HEAD_BYTES = 1 << 16  # a server names itself before it loads its model
_SERVE = "log while requests are answered, or measure: pinchpoint bench serve"
_RECORD = "record one: pinchpoint run COMMAND"


def claims(path: Path, head: bytes) -> bool:
    """A line that one of these programs prints, or a notebook, whose cells may show one."""
    if is_notebook(head):
        return True
    return not _JSON.match(head) and _SIGNS.search(head) is not None


def read(path: Path) -> Trace:
    """The figures; UnreadableFile, with how the program ended, where there are none."""
    # needed for a log alone: readers of other formats are asked after this one
    from pinchpoint.importers.program_logs._line_by_line import look
    from pinchpoint.importers.program_logs.any_figures import AnyFigures
    from pinchpoint.importers.program_logs.collectives import Collectives
    from pinchpoint.importers.program_logs.device_benchmarks import DeviceBenchmarks
    from pinchpoint.importers.program_logs.engines import Engines
    from pinchpoint.importers.program_logs.failures import Failures
    from pinchpoint.importers.program_logs.intervals import Intervals
    from pinchpoint.importers.program_logs.printed_results import PrintedResults
    from pinchpoint.importers.program_logs.progress_bars import ProgressBars
    from pinchpoint.importers.program_logs.python_profiles import PythonProfiles
    from pinchpoint.importers.program_logs.steps import Steps
    from pinchpoint.importers.program_logs.text_tables import TextTables

    named = (
        Engines(), Steps(), PrintedResults(), Operators(), Collectives(), Intervals(),
        PythonProfiles(), DeviceBenchmarks(),
    )  # fmt: skip
    bars, of_text, any_figures, failures = ProgressBars(), TextTables(), AnyFigures(), Failures()
    notebook = is_notebook(_head(path))
    for part in printed(path) if notebook else (lines(path),):
        look(part, failures, (*named, bars), of_text, any_figures)
        any_figures.part_ended()
    known = tuple(table for reader in named for table in reader.tables())
    of_bars = bars.tables()
    often = bool(known or of_bars or of_text.measured() or any_figures.repeats())
    told = often or (any_figures.counts_steps() and said_by_a_line(_head(path)) is None)
    if not told and not (any_figures.measured() and kind_of_text(_head(path)) is None):
        error = failures.cause() or (failures.failed() if _whose(path) else "")
        raise _nothing_in(path, notebook, error)
    tables = known + of_bars + of_text.tables() + any_figures.tables()
    if not known and (name := _whose(path)):
        tables += said_table(
            f"a log of {name}", [("requests answered", "none: log while some are")]
        )
    names = Names()
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size),
        summaries=tables + failures.tables(),
        health=health_table([], names),
        names=names.freeze(),
    )


def _nothing_in(path: Path, notebook: bool, error: str) -> UnreadableFile:
    """What a text without a figure is, and how its program ended."""
    if notebook:
        what, hint = answer(path)
        return UnreadableFile(f"{path}: {what}", hint=hint)
    if _whose(path) or error:
        return UnreadableFile(
            f"{path}: {_what(path)}, without one figure of what ran"
            + (f"; its error: {error}" if error else ""),
            hint=_SERVE if _whose(path) else _after(error),
        )
    what, hint = kind_of_text(_head(path)) or ("text without one figure of what ran", _RECORD)
    return UnreadableFile(f"{path}: {what}, not a recording that Pinchpoint reads", hint=hint)


def _after(error: str) -> str:
    """What to record of a program that ended so."""
    if any(words in error for words in _LACKED):
        return "see what holds the memory: pinchpoint run --memory COMMAND"
    return _RECORD


_LACKED = ("out of memory", "Out of memory", "OutOfMemory", "RESOURCE_EXHAUSTED", "MemoryError")


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
