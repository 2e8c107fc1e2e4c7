"""Python frames in host rows: where in the program something happened, and whose program it is.

PyTorch's tracer writes a frame as ``file(line): function``; the file is relative to the import path
it was found on. The line is where the function begins, not that of the call inside it; only frames
that were running when recording began show the line they were at.
"""

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents, subtree_sums
from pinchpoint.analysis.host.cpu_operators import computed_on_host
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import DeviceKind, HostKind, MemoryKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Codes, Floats, Ints, KeptRows, Mask, Rows, distinct
from pinchpoint.trace.names import rows_named
from pinchpoint.trace.packages import FRAMEWORKS, LIBRARIES, STANDARD


class Owner(IntEnum):
    """Whose code a frame is: nearest to the reader first."""

    USER = 1  # the program itself
    LIBRARY = 2  # an installed package, such as a model library
    FRAMEWORK = 3  # torch and the like, numeric packages, Python's own library


@dataclass(frozen=True)
class PythonFrame:
    """A Python function."""

    file: str
    line: int
    function: str

    @property
    def owner(self) -> Owner:
        """Whose code it is, judged by the path."""
        return owner_of(self.file)


NAMELESS = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>")
_FRAME = regex(r"(?P<file>[^\n]+?)\((?P<line>\d{1,9})\): (?P<function>[^\n]*)")
_PACKAGE = regex(r"(?:site|dist)-packages/([^/]+)")
_GENERATED = regex(r"/torchinductor_[^/]*/")  # written by a compiler
# Where the installation that the README describes has Pinchpoint itself.
_OURS = regex(r"(?:^|/)src/pinchpoint/")
_PYTHON_HOME = regex(r"(?:^|/)lib(?:64)?/python\d[\d.]*/")


@lru_cache(maxsize=1 << 16)
def frame_of(name: str) -> PythonFrame | None:
    """The frame that a host row's name spells; None for built-ins, modules and operators."""
    match = _FRAME.fullmatch(name)
    if match is None or name.startswith("<built-in"):
        return None
    return PythonFrame(match["file"], int(match["line"]), match["function"])


@lru_cache(maxsize=1 << 14)
def owner_of(file: str) -> Owner:
    """Whose code a file is."""
    path = file.replace("\\", "/")
    installed = _PACKAGE.search(path)
    if installed:
        package = installed[1].removesuffix(".py")
        return Owner.FRAMEWORK if package in FRAMEWORKS else Owner.LIBRARY
    if path.startswith("<") or any(p.search(path) for p in (_PYTHON_HOME, _GENERATED, _OURS)):
        return Owner.FRAMEWORK
    top, _, inside = path.partition("/")
    package = top.removesuffix(".py")
    if package in FRAMEWORKS and inside:
        return Owner.FRAMEWORK
    if package in STANDARD:
        return Owner.FRAMEWORK
    return Owner.LIBRARY if package in LIBRARIES and inside else Owner.USER


def is_generated(name: str) -> bool:
    """Whether a compiler wrote the function of a frame."""
    frame = frame_of(name)
    return frame is not None and bool(_GENERATED.search(frame.file))


def in_numeric_package(file: str) -> bool:
    """Whether a file belongs to a package that computes on arrays and tables."""
    return file.startswith(_NUMERIC_PACKAGES)


def in_standard_library(file: str) -> bool:
    """Whether a file belongs to Python's own library."""
    path = file.replace("\\", "/")
    top = path.partition("/")[0].removesuffix(".py")
    at_home = _PYTHON_HOME.search(path) is not None and _PACKAGE.search(path) is None
    return at_home or top in STANDARD


# What runs in the user's program; JAX writes names of files alone.
_RECORDER = regex(r"(?:^|/)pinchpoint/(?:inside|capture)/|^quiet_watch\.py\(\d+\)")


# It is told of each call and each return, in a microsecond: what a look finds it in is a call of
# the program's, in C with the lock, that has just returned. The other one hands a call on.
_COUNTS_CALLS = regex(
    r"pinchpoint/capture/process/(budget\.py\(\d+\): heard|rare_calls\.py\(\d+\): hands_on)$"
)
_COLLECTED = regex(r"pinchpoint/capture/samples/spans\.py\(\d+\): _collects$")


def is_recorder(name: str) -> bool:
    """Whether a frame, as it is spelt, is Pinchpoint's own inside the program that it records."""
    return _RECORDER.search(name) is not None


def in_recorder(frames: Sequence[str]) -> bool:
    """Whether a thread with this stack, innermost frame first, was recording: time that is no
    place of the program's, which one of Python's own library may have been called for."""
    spelt = (n for n in frames if frame_of(n) is not None and _COUNTS_CALLS.search(n) is None)
    first = next((n for n in spelt if not _in_library(n)), "")
    return is_recorder(first) and not was_collecting(first)


def was_collecting(name: str) -> bool:
    """Whether a frame is the one that the collector tells of its end. It is the first that runs
    after a collection, so that a look that came meanwhile finds it: what passed is the collector's,
    at the place of the program that is beneath."""
    return _COLLECTED.search(name) is not None


def _in_library(name: str) -> bool:
    frame = frame_of(name)
    return frame is not None and in_standard_library(frame.file)


@once_per_trace
def recorder_rows(trace: Trace) -> Mask:
    """Rows of ``host_ops`` in Pinchpoint's own functions: the innermost frame around them, but for
    those of Python's own library, is one."""
    host = trace.host_ops
    if host is None:
        return np.zeros(0, np.bool_)
    ours: Mask = rows_named(trace, host, is_recorder) & (host["kind"] == HostKind.PYTHON)
    if not ours.any():
        return ours
    frames = rows_named(trace, host, lambda n: frame_of(n) is not None and not _in_library(n))
    found: Mask = np.append(ours, False)[nearest(parents(host), frames)]
    return found


def shows_python(trace: Trace) -> bool:
    """Whether the recording has Python frames, so that what is not among them did not run."""
    host = trace.host_ops
    return host is not None and bool((host["kind"] == HostKind.PYTHON).any())


@once_per_trace
def owners(trace: Trace) -> Codes:
    """The Owner of each host row that is a Python frame, 0 for the others; shape ``(rows,)``."""
    host = trace.host_ops
    if host is None:
        return np.zeros(0, np.uint8)
    python = host["kind"] == HostKind.PYTHON
    by_name = np.zeros(len(trace.names), np.uint8)
    for position in distinct(host["name"][python]):
        frame = frame_of(trace.names[position])
        by_name[position] = frame.owner if frame else 0
    found: Codes = np.where(python, by_name[host["name"]], 0)
    return found


@once_per_trace
def frames_for_readers(trace: Trace) -> Mask:
    """Host rows whose frame says something to the reader: their own or a library's code."""
    owner = owners(trace)
    found: Mask = (owner == Owner.USER) | (owner == Owner.LIBRARY)
    return found


# ------------------------------------------------------------------------------------------------
# The whole act that the program asked for, seen from any row inside it.
#
# A wait is recorded as a runtime call; what the program wrote is ``x.item()`` or
# ``torch.cuda.synchronize()``, with framework functions and operators in between. When a fix
# takes the act away, all of that goes.


@once_per_trace
def called_by_program(trace: Trace) -> KeptRows:
    """For each row of ``host_ops`` the outermost row around it that is not the program's own.

    A program's own rows are its functions, modules and annotations. ``len(host_ops)`` for those.
    One element more than there are rows, so that the position of no row looks up as no row.
    """
    host = trace.host_ops
    if host is None or not len(host):
        return np.zeros(1, np.int32)
    none = len(host)
    chain = parents(host)
    own = np.isin(host["kind"], (HostKind.MODULE, HostKind.ANNOTATION))
    own |= frames_for_readers(trace)
    under = np.append(own, True)[chain]
    outermost = nearest(chain, under & ~own)
    return np.append(np.where(own, none, outermost), none).astype(np.int32)


def acts(trace: Trace, host_ops: Rows) -> Rows:
    """The distinct acts around these rows; rows that have none are left out."""
    if trace.host_ops is None:
        return np.zeros(0, np.intp)
    around = called_by_program(trace)[host_ops]
    return distinct(around[around < len(trace.host_ops)]).astype(np.intp)


def idle_acts(trace: Trace, host_ops: Rows) -> Rows:
    """The same, where acts launch kernels: only the outermost rows inside them that launch none.

    A library's training loop or ``generate`` is one act; the wait in it is not all of it.
    """
    host = trace.host_ops
    if host is None:
        return np.zeros(0, np.intp)
    none, chain = len(host), parents(host)
    inner = host_ops[host_ops < none]
    around = called_by_program(trace)[inner]
    inner, around = inner[around < none], around[around < none]
    free = np.append(kernels_inside(trace) == 0, False)
    outermost_free = nearest(chain, free[:-1] & ~free[chain])
    rows = np.where(free[around], around, np.append(outermost_free, none)[inner])
    return distinct(rows[free[rows]]).astype(np.intp)


FEWEST_READS = 2  # by one act: a single value is read at the end of many that are wanted


def acts_for_values(trace: Trace, host_ops: Rows) -> Rows:
    """Acts around these reads of device values that launch kernels for nothing but what is read.

    Such an act (formatting a tensor, say) calls a Python function of the framework, reads several
    values, and launches nothing after the last read: what it returns is on the host, so all of it
    is for those values.
    """
    host, ops, calls = trace.host_ops, trace.device_ops, trace.api_calls
    if not host or ops is None or calls is None:
        return np.zeros(0, np.intp)
    none = len(host)
    act = called_by_program(trace)
    read, count = np.unique(act[host_ops], return_counts=True)
    last_read, last_launch = np.full((2, none + 1), -1, np.int64)
    np.maximum.at(last_read, act[host_ops], host["start_ns"][np.minimum(host_ops, none - 1)])
    kernels = (ops["kind"] == DeviceKind.KERNEL) & ops.known("api_call")
    launcher = act[ops.filled("host_op", none)[kernels]]
    np.maximum.at(last_launch, launcher, calls["start_ns"][ops["api_call"][kernels]])
    mine = read[(read < none) & (count >= FEWEST_READS)]
    mine = mine[(host["kind"][mine] == HostKind.PYTHON) & (last_launch[mine] >= 0)]
    # What is built in is an operator, whose result is on the device: it reads for its own ends.
    frames = [frame_of(trace.names[name]) is not None for name in host["name"][mine].tolist()]
    mine = mine[np.array(frames, np.bool_)]
    found: Rows = mine[last_launch[mine] < last_read[mine]].astype(np.intp)
    return found


@once_per_trace
def kernels_inside(trace: Trace) -> Ints:
    """How many kernels each row of ``host_ops`` launched, with the rows inside it.

    A kernel counts for the innermost row around its call, which may be a function inside the
    operator that it belongs to; without a recorded call, for that operator.
    """
    host, calls, ops = trace.host_ops, trace.api_calls, trace.device_ops
    assert host is not None
    count = np.zeros(len(host) + 1, np.int64)
    if ops is not None:
        by = ops.filled("host_op", len(host)).astype(np.int64)
        if calls is not None and len(calls):
            around = np.append(calls.filled("host_op", len(host)).astype(np.int64), len(host))
            inner = around[ops.filled("api_call", len(calls))]
            by = np.where(inner < len(host), inner, by)
        np.add.at(count, by[ops["kind"] == DeviceKind.KERNEL], 1)
    return subtree_sums(parents(host), count[:-1])


# ------------------------------------------------------------------------------------------------
# Which of the program's functions do little else than a given kind of work.
#
# A fix often takes a whole function away (log less often, sample on the device), not only the one
# call in it that a rule recognises.


MOSTLY_RATIO = 0.6  # a function that spends this much of its time on a work does that work
_NUMERIC_PACKAGES = ("numpy/", "pandas/", "PIL/", "matplotlib/", "scipy/", "sklearn/")
_NUMERIC_BUILT_INS = (" of numpy.", " of ImagingEncoder")
_TO_HOST = ("cpu of Tensor", "numpy of Tensor", "tolist of Tensor")
_COPYING = ("aten::_to_copy", "aten::copy_")  # in any direction


def functions_doing(trace: Trace, work: Mask, helping: Mask, least_ratio: float) -> Mask:
    """The program's functions that spend ``least_ratio`` of their time on ``work``, and
    MOSTLY_RATIO on it and what is ``helping`` it; masks over ``host_ops``.

    Work counts for the innermost function of the program around it.
    """
    host = trace.host_ops
    if host is None or not work.any():
        return np.zeros(0 if host is None else len(host), np.bool_)
    user = owners(trace) == Owner.USER
    result: Mask = user & (_share(host, user, work | helping) >= MOSTLY_RATIO)
    result &= _share(host, user, work) >= least_ratio
    return result


def _share(host: Table, user: Mask, wanted: Mask) -> Floats:
    """Time in outermost wanted rows, as a share of the innermost function around them."""
    none, chain = len(host), parents(host)
    above = np.append(nearest(chain, wanted), none)[chain]
    rows = np.flatnonzero(wanted & (above == none))
    spent = np.zeros(none + 1)
    np.add.at(spent, nearest(chain, user)[rows], host["duration_ns"][rows])
    result: Floats = spent[:-1] / np.maximum(host["duration_ns"], 1)
    return result


@once_per_trace
def numeric_on_host(trace: Trace) -> Mask:
    """Rows of ``host_ops`` in which the CPU computes: numeric packages, operators on the CPU."""
    if trace.host_ops is None:
        return np.zeros(0, np.bool_)
    return rows_named(trace, trace.host_ops, _is_numeric) | computed_on_host(trace)


def _is_numeric(name: str) -> bool:
    frame = frame_of(name)
    in_package = frame is not None and frame.file.startswith(_NUMERIC_PACKAGES)
    return in_package or any(built_in in name for built_in in _NUMERIC_BUILT_INS)


@once_per_trace
def copies_to_host(trace: Trace) -> Mask:
    """Rows of ``host_ops`` that copy tensors to the host: by name, or by the copy they launched."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None:
        return np.zeros(0, np.bool_)
    found = rows_named(trace, host, lambda name: any(to in name for to in _TO_HOST))
    if ops is None:
        return found
    down = np.isin(ops.filled("to_memory", 0), (MemoryKind.PAGEABLE, MemoryKind.PINNED))
    down &= ops.filled("from_memory", 0) == MemoryKind.DEVICE
    count = np.zeros(len(host) + 1, np.int64)
    np.add.at(count, ops.filled("host_op", len(host))[down], 1)
    copying = rows_named(trace, host, _COPYING.__contains__)
    return found | (copying & (subtree_sums(parents(host), count[:-1]) > 0))
