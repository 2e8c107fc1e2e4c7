"""What kind of work a host row is, as far as it explains a late launch.

Some work names itself and everything inside it: a loader's ``next``, a compiler, a save. The
innermost such row decides. All other rows speak for themselves.
"""

import re
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.ancestry import nearest
from pinchpoint.analysis.host.cpu_operators import computed_on_host
from pinchpoint.analysis.host.frames import recorder_rows
from pinchpoint.analysis.host.launches import loading_calls
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, HostKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Codes, Ints, Mask, Rows, distinct
from pinchpoint.trace.kinds import UNRECORDED_WAIT
from pinchpoint.trace.names import rows_named

# ------------------------------------------------------------------------------------------------
# Why the device can be idle: the closed list of kinds.


class GapKind(IntEnum):
    """What the device waited for, or what the host was doing while it should have fed it."""

    DATA = 1
    SYNC = 2
    AFTER_SYNC = 3
    DISPATCH = 4
    PYTHON = 5
    GRAPH_LAUNCH = 6
    MALLOC = 7
    COPY_CALL = 8
    COMPILE = 9
    CODE_LOAD = 10
    GC = 11
    CHECKPOINT = 12
    LOGGING = 13
    WAIT = 14
    HOST_COLLECTIVE = 15
    AUTOGRAD = 16
    DEPENDENCY = 17
    START_LATENCY = 18
    PROFILER = 19
    UNRECORDED = 20
    HOST_COMPUTE = 21

    @property
    def id(self) -> str:
        """Stable name for documents."""
        return "idle-" + self.name.lower().replace("_", "-")

    @property
    def label(self) -> str:
        """Name for people; read after "device idle: "."""
        return LABELS[self]


LABELS = {
    GapKind.DATA: "host waits for or prepares the next batch",
    GapKind.SYNC: "host blocked in a synchronising call",
    GapKind.AFTER_SYNC: "queue empty after a synchronisation",
    GapKind.DISPATCH: "host dispatches operators",
    GapKind.PYTHON: "host runs Python",
    GapKind.GRAPH_LAUNCH: "host launches a graph",
    GapKind.MALLOC: "driver allocates or frees device memory",
    GapKind.COPY_CALL: "host stages a copy",
    GapKind.COMPILE: "compiling",
    GapKind.CODE_LOAD: "loading device code",
    GapKind.GC: "collecting garbage",
    GapKind.CHECKPOINT: "saving or loading a checkpoint",
    GapKind.LOGGING: "writing logs or files",
    GapKind.WAIT: "host waits for another thread or process",
    GapKind.HOST_COLLECTIVE: "processes communicate through the host",
    GapKind.AUTOGRAD: "hand-over to or from the autograd thread",
    GapKind.DEPENDENCY: "issued in time, waits for other work",
    GapKind.START_LATENCY: "start latency between operations",
    GapKind.PROFILER: "the profiler's own work",
    GapKind.UNRECORDED: "host idle, descheduled or not recorded",
    GapKind.HOST_COMPUTE: "host computes operators on the CPU",
}

# The host was late with work that it could have issued earlier, had it not waited before.
CATCHES_UP = (
    GapKind.DISPATCH,
    GapKind.PYTHON,
    GapKind.GRAPH_LAUNCH,
    GapKind.COPY_CALL,
    GapKind.AUTOGRAD,
    GapKind.START_LATENCY,
    GapKind.UNRECORDED,
)


# ------------------------------------------------------------------------------------------------
# What kind of work a host row is, as far as it explains a late launch.


# Of an array that is still being computed; names of files as JAX's own profiler writes them,
# without folders. And what XLA calls its own waits for its threads.
_FOR_XLA = (
    r"(?:^|jax/_src/)(?:array\.py\(\d+\): (?:_value|block_until_ready)"
    r"|api\.py\(\d+\): (?:block_until_ready|try_to_block))$"
    r"|^(?:ThunkExecutor::Execute \(wait for completion\)|\w+::Await|Wait for \w+ holds)$"
)
waits_for_xla = regex(rf"{_FOR_XLA}|^{UNRECORDED_WAIT}$").search

# Rows that stand for everything inside them. Python frames are spelt "file.py(LINE): function".
_FRAMES: tuple[tuple[GapKind, str], ...] = (
    # Iterating a loader, of torch and of the libraries that replace it; starting its workers.
    (
        GapKind.DATA,
        r"^enumerate\(Data(Loader|Pipe)\)#|torch/utils/data/dataloader\.py"
        r"|(torchdata|nvidia/dali|webdataset|ffcv|mosaicml_streaming)/.*: (__)?next(__)?$"
        r"|^IteratorGetNext|tensorflow_datasets/.*: __next__",
    ),
    # Just-in-time compilers while they compile. By functions: next to them in the same files lie
    # those that call what was compiled (compile_fx.py: run) or start a kernel (triton/backends).
    (
        GapKind.COMPILE,
        r"torch/_dynamo/(convert_frame\.py\(\d+\): (__call__|_?compile\w*|transform)$"
        r"|(symbolic_convert|output_graph)\.py)|\(dynamo_timed\)$"
        r"|torch/_inductor/(graph|scheduler|lowering|async_compile)\.py|torch/_inductor/codegen/"
        r"|torch/_inductor/compile_fx\.py\(\d+\): \w*(compile|compiler|codegen)(_|$)\w*"
        r"|torch/_inductor/codecache\.py\(\d+\): \w*(compile|load)\w*$"
        r"|torch/_functorch/_aot_autograd/graph_compile\.py"
        r"|triton/compiler/(code_generator\.py|compiler\.py\(\d+\): (compile|make_\w+)$)"
        r"|triton/backends/(\w+/)?compiler\.py\(\d+\): make_\w+$"
        r"|triton/runtime/jit\.py\(\d+\): _do_compile|triton/runtime/autotuner\.py\(\d+\): _bench"
        # JAX's own profiler writes the names of files without their folders.
        r"|jax/.*: (backend_)?compile|^compiler\.py\(\d+\): (backend_compile|compile_or_get_cached)"
        r"|^XlaCompile",
    ),
    (GapKind.GC, r"^Python GC|^gc\.collect"),
    (
        GapKind.CHECKPOINT,
        r"torch/serialization\.py\(\d+\): (save|load)$|torch/distributed/checkpoint/"
        r"|safetensors/|: (save|load)_checkpoint$|orbax/",
    ),
    (
        GapKind.LOGGING,
        r"torch/utils/tensorboard/|tensorboardX/|wandb/|mlflow/|matplotlib/"
        # Asking for a logger or its level writes nothing; autograd asks in every backward().
        r"|^logging/__init__\.py(?!\(\d+\): (getLogger|getEffectiveLevel|isEnabledFor)$)"
        r"|^tqdm/std\.py|PIL/Image\.py\(\d+\): save",
    ),
    (GapKind.PROFILER, r"torch/profiler/|torch/autograd/profiler\.py"),
    (GapKind.HOST_COLLECTIVE, r"^(gloo|mpi|ucc):|^_c10d_functional::wait_tensor$"),
    # A thread that sleeps until another one has something for it.
    (
        GapKind.WAIT,
        r"^(threading|queue|selectors|subprocess)\.py\(\d+\): (wait|get|put|select|join)$"
        r"|^multiprocessing/(queues|connection|popen_\w+)\.py\(\d+\): (get|wait|poll|recv\w*)$"
        rf"|concurrent/futures/_base\.py\(\d+\): result$|{_FOR_XLA}",
    ),
    # The caller of backward() waits in here for the autograd thread.
    (GapKind.AUTOGRAD, r"torch/autograd/graph\.py\(\d+\): _engine_run_backward"),
)
# The same for C functions, "<built-in method NAME of TYPE object at 0x…>".
_BUILTINS: tuple[tuple[GapKind, str], ...] = (
    (GapKind.GC, r"function collect>"),
    (GapKind.LOGGING, r"function print>|method (write|writelines|flush|fsync) of _io\."),
    (GapKind.PROFILER, r"(method|function) _record_function_(enter|exit)"),
    # ``wait`` is what futures and collectives that were begun have (torch's Work and Future).
    (GapKind.WAIT, r"method (acquire|wait|poll|select|recv\w*) of |function (sleep|select)>"),
    (GapKind.AUTOGRAD, r"method run_backward of "),
)
_BUILTIN = "<built-in "

Patterns = tuple[tuple[GapKind, re.Pattern[str]], ...]


def _compiled(rows: tuple[tuple[GapKind, str], ...]) -> Patterns:
    return tuple((kind, regex(pattern)) for kind, pattern in rows)


_FRAME_PATTERNS, _BUILTIN_PATTERNS = _compiled(_FRAMES), _compiled(_BUILTINS)

BUFFERS = "Build buffer allocations"  # of XLA's runtime: what an execution needs
# XLA's own allocator takes 1 to 3 us a buffer: 8 to 460 us for 5 to 250 of them in eight recordings
# of an H200. The driver took 0.5 to 33 ms for the same.
FROM_DRIVER_NS = 1_000_000
_RUNTIME = regex(rf"LoadedExecutable(::|_)|^\[\d+\] GpuExecutable::|^{BUFFERS}$")

_OF_CALL = {
    ApiKind.SYNC_DEVICE: GapKind.SYNC,
    ApiKind.SYNC_STREAM: GapKind.SYNC,
    ApiKind.SYNC_EVENT: GapKind.SYNC,
    ApiKind.MALLOC: GapKind.MALLOC,
    ApiKind.FREE: GapKind.MALLOC,
    ApiKind.HOST_ALLOC: GapKind.MALLOC,
    ApiKind.COPY: GapKind.COPY_CALL,
    ApiKind.GRAPH_LAUNCH: GapKind.GRAPH_LAUNCH,
    ApiKind.MODULE_LOAD: GapKind.CODE_LOAD,
}
_OF_HOST = {
    HostKind.PYTHON: GapKind.PYTHON,
    HostKind.MODULE: GapKind.PYTHON,
    HostKind.ANNOTATION: GapKind.PYTHON,
    HostKind.COMPILE: GapKind.COMPILE,
    HostKind.OVERHEAD: GapKind.PROFILER,
}

# These hold even where a more specific row is open inside: a sync in a loader is loading.
_WEAK = (GapKind.AUTOGRAD, GapKind.WAIT, GapKind.PROFILER)


@once_per_trace
def activity(trace: Trace) -> Codes:
    """The GapKind of each of ``host_rows``, plus a last element for no row at all.

    ``activity(trace)[NO_ROW]`` is UNRECORDED, so looking up NO_ROW needs no check.
    """
    rows = host_rows(trace)
    code = _by_itself(trace)
    python = code[: rows.operators] == GapKind.PYTHON
    enclosing = _by_name(trace, rows.name)
    enclosing[_around_steps(trace)] = 0
    left = sends_left_alone(trace)
    enclosing[left], code[left] = 0, GapKind.PYTHON
    if trace.host_ops is not None:
        compiler = trace.host_ops["kind"] == HostKind.COMPILE
        enclosing[: rows.operators][compiler] = GapKind.COMPILE
    strong = (enclosing != 0) & ~np.isin(enclosing, _WEAK)
    around = nearest(_chain(rows.parent), strong)
    inside = around < len(rows)
    if trace.host_ops is not None:  # a thread that computes stands in no transfer of its backend
        computes = np.flatnonzero(trace.host_ops["kind"] == HostKind.OPERATOR)
        between = enclosing[np.minimum(around[computes], len(rows) - 1)] == GapKind.HOST_COLLECTIVE
        inside[computes[between & ~_issues(trace)[computes]]] = False
    code[inside] = enclosing[around[inside]]
    code = _weakly(code, enclosing, rows.parent, inside)
    code[: rows.operators][recorder_rows(trace) & python] = GapKind.PROFILER
    return np.append(code, np.uint8(GapKind.UNRECORDED))


_SEND = regex(r"(gloo|mpi|ucc):send")
_ISSUES = ("c10d::", "record_param_comms")  # operators that hand a transfer over to the backend


def _issues(trace: Trace) -> Mask:
    host = trace.host_ops
    assert host is not None
    return rows_named(trace, host, lambda name: name.startswith(_ISSUES))


@once_per_trace
def sends_left_alone(trace: Trace) -> Rows:
    """Sends of the host's backend in which their thread goes on with operators: nobody waits in
    them, and they end when the other rank has received."""
    host = trace.host_ops
    if host is None:
        return np.zeros(0, np.intp)
    sends = rows_named(trace, host, lambda name: _SEND.match(name) is not None)
    found = np.flatnonzero(sends)
    computes = (host["kind"] == HostKind.OPERATOR) & ~_issues(trace) if len(found) else sends
    goes_on = np.zeros(len(found), np.bool_)
    for thread in distinct(host["thread"][found]).tolist():
        begins = np.sort(host["start_ns"][computes & (host["thread"] == thread)])
        mine = host["thread"][found] == thread
        rows = found[mine]
        edges = np.searchsorted(begins, (host["start_ns"][rows], host.end_ns[rows]))
        goes_on[mine] = edges[1] > edges[0]
    return found[goes_on]


def _weakly(code: Codes, enclosing: Codes, parent: Ints, taken: Mask) -> Codes:
    """Waiting and hand-over explain Python frames inside them, but not calls and operators."""
    around = nearest(_chain(parent), np.isin(enclosing, _WEAK))
    explained = (around < len(parent)) & ~taken & (code == GapKind.PYTHON)
    code[explained] = enclosing[around[explained]]
    return code


def _chain(parent: Ints) -> Ints:
    return np.where(parent == NO_ROW, len(parent), parent)


def _by_itself(trace: Trace) -> Codes:
    rows = host_rows(trace)
    code = np.full(len(rows), GapKind.DISPATCH, np.uint8)
    for table, part, meaning in (
        (trace.host_ops, code[: rows.operators], _OF_HOST),
        (trace.api_calls, code[rows.operators :], _OF_CALL),
    ):
        if table is not None:
            for kind, gap in meaning.items():
                part[table["kind"] == kind] = gap
    code[rows.operators :][loading_calls(trace)] = GapKind.CODE_LOAD
    if trace.host_ops is not None and not _shows_code(trace.host_ops):
        code[: rows.operators][trace.host_ops["kind"] == HostKind.ANNOTATION] = GapKind.UNRECORDED
    _in_runtime(trace, code[: rows.operators])
    code[: rows.operators][computed_on_host(trace)] = GapKind.HOST_COMPUTE
    _of_the_driver(trace, code)
    return code


def _of_the_driver(trace: Trace, code: Codes) -> None:
    """What a call into the driver asks the operating system for, it does for that call."""
    rows, host = host_rows(trace), trace.host_ops
    if host is None:
        return
    parent = rows.parent[: rows.operators]
    asked = np.flatnonzero(parent >= rows.operators)
    code[asked] = code[parent[asked]]


def _in_runtime(trace: Trace, code: Codes) -> None:
    """Name ranges of XLA's runtime, in which the frame that called it runs no Python, and waits
    for it that no event shows."""
    host = trace.host_ops
    if host is None:
        return
    code[rows_named(trace, host, lambda name: bool(_RUNTIME.search(name)))] = GapKind.DISPATCH
    code[rows_named(trace, host, UNRECORDED_WAIT.__eq__)] = GapKind.WAIT
    buffers = rows_named(trace, host, BUFFERS.__eq__)
    code[buffers & (host["duration_ns"] >= FROM_DRIVER_NS)] = GapKind.MALLOC


def _shows_code(host: Table) -> bool:
    """Whether anything but ranges is recorded of the host; ranges alone say nothing of its time."""
    return bool(np.isin(host["kind"], (HostKind.OPERATOR, HostKind.PYTHON)).any())


def _by_name(trace: Trace, name: NDArray[np.int32]) -> Codes:
    code = np.zeros(len(trace.names), np.uint8)
    for position in np.flatnonzero(np.bincount(name, minlength=1)).tolist():
        code[position] = meaning_of(trace.names[position])
    return code[name]


def meaning_of(name: str) -> int:
    """What a row of this name stands for with all that is inside it; 0 for nothing special."""
    if name.startswith(_BUILTIN):
        found = (kind for kind, pattern in _BUILTIN_PATTERNS if pattern.match(name, len(_BUILTIN)))
    else:
        found = (kind for kind, pattern in _FRAME_PATTERNS if pattern.search(name))
    return next(found, 0)


def _around_steps(trace: Trace) -> Mask:
    """Rows that enclose two steps: a wrapper around the loop, of a logger say, explains nothing."""
    rows, windows = host_rows(trace), steps(trace)
    first = np.searchsorted(windows.host_start_ns, rows.start_ns, "left")
    second_end = np.append(windows.host_end_ns[1:], [np.iinfo(np.int64).max] * 2)
    encloses: Mask = second_end[first] <= rows.end_ns
    return encloses
