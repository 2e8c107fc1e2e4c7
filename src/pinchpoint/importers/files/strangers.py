"""What a file is that is no recording, and the command that helps."""

import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

from pinchpoint.regex import regex

_LFS = regex(rb"^version https://(?:git-lfs|hawser)\.github\.com/spec/v1\b")
_LFS_SIZE = regex(rb"^size (\d{1,15})$", re.MULTILINE)
_UNFINISHED = (
    ".part",
    ".crdownload",
    ".download",
    ".partial",
    ".opdownload",
    ".aria2",
    ".filepart",
)
_XPROF_PAGE = regex(
    r"(overview_page|input_pipeline|op_profile|memory_viewer|pod_viewer|kernel_stats"
    r"|hlo_stats|memory_profile)\b[^/]*\.(pb|json|csv)(\.gz)?$"
)
RECORD = "record what the device does too: pinchpoint run python train.py"
_ROCPROF_VALUES = regex(r"^\d+-\d+-\w+\.dat$")  # process, number, what
_LEAST_OF_TEXT = 9  # a tab; no text has bytes below it
_LOST_RATIO = 0.1  # of the bytes: half of those of a packed number are no text
# Messages behind their lengths; the first has the version of the schema, of attributes by name.
_CHAKRA = regex(
    rb".{1,8}schema.{1,4}\d+\.\d+\.\d+-chakra|.{1,4}\n\x06schema.{1,4}\d+\.\d+\.\d+", re.DOTALL
)
_AGAIN = "fetch it again: curl -fLO URL (-f: no error page is kept as the file)"
# Profilers of the host alone, by what their files begin with or say first.
_HOST_PROFILES = (
    (regex(rb"\{[\s\S]*speedscope\.app/file-format-schema"), "a speedscope profile"),
    (regex(rb'\{\s*"meta":\s*\{[\s\S]*"processType"'), "a Firefox profile (samply)"),
    (regex(rb'\{\s*"nodes":\s*\[\s*\{\s*"id":\s*\d+,\s*"callFrame"'), "a profile of V8"),
    (regex(rb'\{\s*"alloc_samples"'), "a profile of Scalene"),
    (regex(rb"PERFILE2"), "a recording of Linux perf"),
    (regex(rb"memray\x00|\x04\x22\x4d\x18.{8,24}memray\x00", re.DOTALL), "a recording of memray"),
    (regex(rb'\{\s*"start_time":[^{}]*"sample_count"'), "a profile of pyinstrument"),
    (regex(rb"# =+\s+# captured on"), "samples printed by perf script"),
    (regex(rb"\x80.{0,16}_?line_profiler\W", re.DOTALL), "times by line of line_profiler"),
    # marshal: a dict (fb with, { without a reference) of tuples of three (a9 or 29, length)
    (regex(rb"[\xfb{][\xa9)]\x03"), "statistics of Python's cProfile"),
)
# Threads, tasks and categories of Chromium, and of Node, which took over its tracing.
_BROWSER = regex(
    rb'"(Cr(Browser|Renderer|Gpu)Main|Chrome_IOThread|JavaScriptMainThread)"'
    rb'|"ThreadControllerImpl::|"(disabled-by-default-)?devtools\.timeline'
)
# Of Proton, Triton's profiler: a tree of frames with sums.
_PROTON = regex(rb'\[\s*\{\s*"(children|frame)"\s*:')
_ENGINE = regex(rb'\{\s*"Layers"\s*:\s*\[\s*["{]')  # trtexec --exportLayerInfo
_NCCL_EVENTS = regex(
    rb'"cat": ?"(GROUP_API|COLL_API|P2P_API|GROUP|COLL|PROXY)", ?"ph": ?"[be]", ?"id"'
)
_HOROVOD = regex(rb'"name": ?"NEGOTIATE_(ALLREDUCE|ALLGATHER|BROADCAST|ALLTOALL)"')
# An operation by its name, with begin, end and duration: what a page is drawn of.
_DRAWN = regex(
    rb'"[^"]{1,200}": ?\{"(st|start)": ?[\d.]+, ?"(ed|end)": ?[\d.]+, ?"(dur|duration)": ?[\d.]+\}'
)
# ExportTraceServiceRequest, by both spellings of its schema.
_SPANS = regex(rb'\{\s*"(resourceSpans|resource_spans)"\s*:')
_WORKLOAD = regex(rb'\{\s*"workload_graph"\s*:')
_TITLE = regex(rb"<title[^>]*>\s*([^<]{1,60}?)\s*</title", re.IGNORECASE)
# What torch_npu writes beside its traces: how it was set up, and sums of communication.
_BESIDE_ASCEND = regex(
    rb'\{\s*"(config"\s*:\s*\{\s*"(common|experimental)_config"|ENV_VARIABLES"|distributed_args"'
    rb'|parallel_group_info"|step\d*"\s*:\s*\{\s*"(p2p|collective)"'
    rb'|(p2p|collective)"\s*:\s*\{\s*"step\d*")'
)
# Records behind length and checksum; the first has the version: field 3 behind the time, field 1.
_TENSORBOARD = regex(rb"[\x01-\xff]\x00{7}.{4}\x09.{8}\x1a.brain\.Event:", re.DOTALL)

Answer = tuple[str, str]  # what it is, and the next step


def unmistakable(path: Path, head: bytes) -> Answer | None:
    """What surely is no recording, whatever it is called."""
    return next((answer for look in _LOOKS if (answer := look(path, head.lstrip()))), None)


def guess(head: bytes, tail: bytes = b"") -> Answer | None:
    """What a file that no reader claims may be, by its first bytes and its last ones."""
    from pinchpoint.importers.files.printed import MAGICS, PRINTED, TABLES  # seldom needed

    for magic, what, hint in MAGICS:
        if head.startswith(magic):
            return what, hint
    if _CHAKRA.match(head):
        return (
            "a Chakra execution trace for simulators, without what a run took",
            "give the profiler's trace of the run that it was made from",
        )
    if report := wrote(head + tail):
        return "the log of a program that was recorded", f"give the recording: {report}"
    for printed, what, hint in PRINTED:
        if printed.search(head) or printed.search(tail):
            return what, hint
    if re.match(rb"\s*\[\s*\[\s*-?\d", head):
        return (
            "lists of numbers, as a memory timeline's sums are",
            'export it raw: prof.export_memory_timeline("memory.raw.json.gz")',
        )
    return _table(head, TABLES)


def _table(head: bytes, tables: Iterable[tuple[tuple[bytes, ...], str, str]]) -> Answer | None:
    lines = head.removeprefix(b"\xef\xbb\xbf").lower().replace(b'"', b"").splitlines()[:2]
    if lines and lines[0].lstrip()[:1] in (b"{", b"["):
        return None  # JSON, whose keys are no columns
    for columns, what, hint in tables:  # DLProf's have a title above
        if any(all(column in line for column in columns) for line in lines):
            return what, hint
    return None


def wrote(log: bytes) -> str | None:
    """Where a log says that the recording went."""
    from pinchpoint.importers.files.printed import WROTE

    for said in WROTE:
        if found := said.search(log):
            return found[1].decode("utf-8", "replace")
    return None


def _pointer(path: Path, head: bytes) -> Answer | None:
    if _LFS.match(head):
        size = _LFS_SIZE.search(head)
        of = f" to {int(size[1]) / 1e6:.3g} MB" if size else ""
        pull = f"git lfs install && git lfs pull --include {shlex.quote(f'*{path.name}')}"
        return f"a Git LFS pointer{of}, not the file itself", pull
    if b"/annex/objects/" in head[:200] and len(head) < 1000:
        return "a git-annex pointer, not the file itself", f"git annex get {shlex.quote(path.name)}"
    if head.startswith(b"outs:\n- md5:"):
        return "a DVC pointer, not the file itself", f"dvc pull {shlex.quote(path.name)}"
    return None


def _turned_into_text(path: Path, head: bytes) -> Answer | None:
    """Bytes that were read as text: what is none becomes U+FFFD, and nothing brings it back."""
    lost = head.count(b"\xef\xbf\xbd")
    if 3 * lost < _LOST_RATIO * len(head) or not any(byte < _LEAST_OF_TEXT for byte in head):
        return None
    return (
        "binary data that was handled as text, which destroyed it",
        "copy it again as it is: git with *.pb binary in .gitattributes, or curl -LO URL",
    )


def _page(path: Path, head: bytes) -> Answer | None:
    start = head[:1000].lower()
    if not start.startswith((b"<!doctype html", b"<html", b"<head")):
        return None
    if b"pinchpoint" in head.lower():
        return "a report of Pinchpoint, not a recording", "give the recording it was made of"
    if b"data:image/png;base64" in head or b"memory timeline" in start:
        return (
            "a memory timeline as a picture, which holds no numbers",
            'export it as data: prof.export_memory_timeline("memory.raw.json.gz")',
        )
    if b"github" in start:
        return (
            "the page about a file, not the file",
            "fetch its raw form: curl -fLO https://github.com/OWNER/REPO/raw/BRANCH/PATH",
        )
    if b"trace" in start:
        return "an HTML page about a trace, such as its viewer", "give the trace that it shows"
    title = _TITLE.search(head)
    called = f", titled {title[1].decode('utf-8', 'replace')!r}" if title else ""
    return (
        f"an HTML page{called}: a report of a tool, or a download that failed",
        f"give the recording that the report shows, or {_AGAIN}",
    )


def _refusal(path: Path, head: bytes) -> Answer | None:
    """What servers answer instead of a file."""
    if len(head) > 3000:  # answers are short
        return None
    if head.startswith(b"<?xml") and b"<Error>" in head and b"<Code>" in head:
        code = head.partition(b"<Code>")[2].partition(b"<")[0].decode("ascii", "replace")[:40]
        return f"an object store's answer ({code}), not the file", _AGAIN
    if re.match(rb"(404: Not Found|Not Found|Access denied|Forbidden)\s*$", head, re.IGNORECASE):
        return "a server's answer, not the file", _AGAIN
    asked = re.match(rb'\{\s*"(message|error|detail)"\s*:', head)
    if asked and b"traceEvents" not in head and b'"ph"' not in head:
        return "a server's answer, not the file", _AGAIN
    return None


def is_note_of_ascend(head: bytes) -> bool:
    """Whether a file begins as what torch_npu writes beside its traces does."""
    return _BESIDE_ASCEND.match(head) is not None


def _of_another_tool(path: Path, head: bytes) -> Answer | None:
    """Files that stand beside recordings, or are results of other kinds."""
    events = b"traceEvents" in head or b'"ph"' in head
    if _XPROF_PAGE.search(path.name.lower()) and not events:
        return "a page of XProf, made from a recording", "give the .xplane.pb that it was made from"
    if path.name.lower().endswith((".hlo_proto.pb", ".hlo_proto.pb.gz")):
        return (
            "a compiled program, which holds no times",
            "give the .xplane.pb of the same folder: it has the program and what it took",
        )
    if _ROCPROF_VALUES.search(path.name):
        return (
            "what rocprofv3 keeps until its program ends",
            "let it end, then give kernel_trace.csv, or record again with --output-format json",
        )
    if _TENSORBOARD.match(head):
        return (
            "TensorBoard's log of values, which has no profile",
            "give the profile beside it: plugins/profile/*/*.xplane.pb, or *.pt.trace.json",
        )
    if not events and is_note_of_ascend(head):
        return (
            "notes beside a recording of Ascend's profiler",
            "give trace_view.json or the database in ASCEND_PROFILER_OUTPUT, or that folder",
        )
    if _ENGINE.match(head):
        return (
            "what TensorRT built, layer by layer, without what one took",
            "measure them: trtexec --loadEngine=ENGINE --dumpProfile --separateProfileRun"
            " --exportProfile=profile.json",
        )
    if _NCCL_EVENTS.search(head):
        return (
            "events of NCCL's example profiler, of the host's side of collectives alone",
            "measure them: NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so"
            " NCCL_INSPECTOR_ENABLE=1; or record the run: pinchpoint run COMMAND",
        )
    if _HOROVOD.search(head):
        return (
            "a timeline of Horovod, of the phases of its collectives alone",
            "record what the program does beside them, on each rank: pinchpoint run COMMAND",
        )
    if _PROTON.match(head) and b'"frame"' in head:
        return (
            "a tree of sums, as Triton's Proton writes it, without times",
            'record when it ran: proton.start(NAME, data="trace"), or pinchpoint run COMMAND',
        )
    return None


def _of_the_host(path: Path, head: bytes) -> Answer | None:
    if b"<svg" in head:
        return "a picture (SVG), such as a flame graph", RECORD
    if b"traceEvents" not in head and b'"ph"' not in head:
        for profile, name in _HOST_PROFILES:
            if profile.match(head):
                return f"{name}, which knows the host alone", RECORD
    if _BROWSER.search(head):
        return "a trace of a browser or of Node.js, which knows no device", RECORD
    return None


def _of_simulators(path: Path, head: bytes) -> Answer | None:
    if _WORKLOAD.match(head):
        return (
            "a workload for simulators (Chakra), without what a run took",
            "give the profiler's trace of the run that it was made from",
        )
    return None


def _of_a_server(path: Path, head: bytes) -> Answer | None:
    if head[:1] == b"[" and b'"timestamps"' in head and b'"REQUEST_START"' in head:
        return (
            "timestamps of requests of a Triton server, and nothing of what it ran",
            "record the server under this load: pinchpoint run; or measure: pinchpoint bench serve",
        )
    if _SPANS.match(head):
        return (
            "spans of OpenTelemetry (OTLP), which know requests and functions and no device",
            RECORD,
        )
    return None


def _drawn(path: Path, head: bytes) -> Answer | None:
    if b"traceEvents" in head or not _DRAWN.search(head):
        return None
    return (
        "begin and end of each operation by its name, as a page of another tool draws them",
        "give the recording that they were taken from (of MindSpore: msprof_*.json), or record"
        " the run: pinchpoint run COMMAND",
    )


def _unfinished(path: Path, head: bytes) -> Answer | None:
    if path.suffix.lower() in _UNFINISHED:
        return (
            "a download that has not ended",
            "wait for it, or go on with it: curl -C - -Lo NAME URL",
        )
    return None


_LOOKS: tuple[Callable[[Path, bytes], Answer | None], ...] = (
    _pointer,
    _turned_into_text,
    _page,
    _refusal,
    _of_another_tool,
    _drawn,
    _of_the_host,
    _of_simulators,
    _of_a_server,
    _unfinished,
)


__all__ = ["RECORD", "guess", "unmistakable", "wrote"]
