"""Who encloses whom on a host thread, answered for all rows at once.

Rows that enclose nothing and are enclosed by nothing have the parent ``len(rows)``: a position that
does not exist, so that a forgotten check fails loudly, and one that an array with one extra element
at its end can answer.
"""

from contextlib import suppress
from enum import IntEnum
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Table, Trace, once_per_table, once_per_trace
from pinchpoint.trace.arrays import Array, Codes, Ints, KeptRows, Mask, Rows, distinct

compiled: Any = None
with suppress(ImportError):  # installed without a compiler
    compiled = import_module("pinchpoint.analysis.host._chains")


@once_per_table
def parents(host_ops: Table) -> Rows:
    """The enclosing row of each row; ``len(host_ops)`` where there is none."""
    return host_ops.filled("parent", len(host_ops)).astype(np.int64)


def nearest(parent: Rows, wanted: Mask) -> Rows:
    """The innermost wanted row that is or encloses each row; ``len(parent)`` where none does.

    What is not compiled follows all chains together and doubles the stride each round, so that the
    deepest stack costs its logarithm.
    """
    none, mask = len(parent), np.ascontiguousarray(wanted).view(np.uint8)
    if _fits(parent, mask) and (found := compiled.nearest(parent, mask)) is not None:
        return cast("Rows", found)
    itself = np.flatnonzero(wanted)
    if not len(itself):
        return np.full(none, none, np.int64)
    jump: Rows = np.append(parent, none)
    jump[itself] = itself
    while True:
        further = jump.take(jump)  # half as long as jump[jump]
        if np.array_equal(further, jump):
            return jump[:-1]
        jump = further


@once_per_trace
def operators_around(trace: Trace) -> KeptRows:
    """The innermost operator that is or encloses each row of ``host_ops``, and none for no row."""
    host = trace.host_ops
    if host is None:
        return np.zeros(1, np.int32)
    around = nearest(parents(host), host["kind"] == HostKind.OPERATOR)
    return np.append(around, len(host)).astype(np.int32)


def within(parent: Rows, wanted: Mask) -> Mask:
    """Whether each row is wanted or inside a wanted one; one more element, False, for no row."""
    return np.append(nearest(parent, wanted) < len(parent), False)


def within_rows(parent: Rows, rows: Rows) -> Mask:
    """As :func:`within`, for the numbers of the wanted rows."""
    wanted = np.zeros(len(parent), np.bool_)
    wanted[rows] = True
    return within(parent, wanted)


def above(parent: Rows, wanted: Mask) -> Rows:
    """The innermost wanted row that encloses each row without being it."""
    found: Rows = np.append(nearest(parent, wanted), len(parent))[parent]
    return found


def depths(parent: Rows) -> Rows:
    """How many rows enclose each row."""
    if _fits(parent, parent) and (found := compiled.depths(parent)) is not None:
        return cast("Ints", found)
    none = len(parent)
    jump = np.append(parent, none)
    depth = np.append((parent != none).astype(np.int64), 0)
    while np.any(jump != none):
        depth += depth[jump]
        jump = jump[jump]
    return depth[:-1]


def subtree_sums(parent: Rows, values: Ints) -> Ints:
    """The value of each row plus those of all rows inside it."""
    total = values.astype(np.int64)
    if not total.any():
        return total
    if _fits(parent, total) and (found := compiled.subtree_sums(parent, total)) is not None:
        return cast("Ints", found)
    depth = depths(parent)
    order = np.argsort(-_sortable(depth), kind="stable")
    edges = np.flatnonzero(np.diff(depth[order])) + 1
    for level in np.split(order, edges):  # deepest first; one round a depth
        inner = level[parent[level] != len(parent)]
        np.add.at(total, parent[inner], total[inner])
    return total


def _fits(parent: Rows, values: Array) -> bool:
    """Whether the compiled form takes these: one value a row, and numbers as it knows them."""
    known = compiled is not None and parent.dtype == np.int64 and parent.flags.c_contiguous
    return known and len(values) == len(parent)


def numbered(keys: Ints) -> Ints:
    """Small numbers for any non-negative keys, equal for equal ones and in their order.

    In place of ``np.unique`` where keys are not much more than rows: counting beats sorting.
    """
    if not len(keys) or keys.max() > 4 * len(keys) + 1024:
        return np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
    used = np.bincount(keys) > 0
    numbers: Ints = (np.cumsum(used) - 1)[keys]
    return numbers


def _sortable(numbers: Ints) -> NDArray[np.integer]:
    """As 16-bit numbers if they fit: those are sorted by radix, several times faster."""
    return numbers.astype(np.int16) if numbers.max(initial=0) < 1 << 15 else numbers


def outermost(group: Ints, start: Ints, end: Ints) -> Mask:
    """Whether each interval lies inside no earlier one of its group.

    Recursion would otherwise count the same time once a level. Intervals are sorted by start,
    outer first; ``group`` numbers them (an operator on a thread, say).
    """
    if not len(group):
        return np.ones(0, np.bool_)
    order = np.argsort(_sortable(numbered(group)), kind="stable")
    ids = np.cumsum(np.diff(group[order], prepend=group[order[0]]) != 0)
    # Each group gets a range of its own above those before it, so one running maximum does.
    ends = end - start.min()
    span = int(ends.max()) + 1
    if int(ids[-1]) * span >= 1 << 62:  # does not fit: ranks compare like the times themselves
        ends = np.unique(ends, return_inverse=True)[1].reshape(-1)
        span = len(ends)
    reach = np.maximum.accumulate(ends[order] + ids * span)
    before = np.concatenate(([-1], reach[:-1])) - ids * span
    result = np.empty(len(group), np.bool_)
    result[order] = ends[order] > before
    return result


# ------------------------------------------------------------------------------------------------
# What the training thread itself does to prepare its input, told by its Python frames.
#
# Only the work of the process that was recorded shows; what worker processes do does not.


class InputWork(IntEnum):
    """Kinds of work that have different cures; 0 is none of them."""

    DECODE = 1  # compressed pictures, video, sound
    FILES = 2  # opening, reading, parsing
    COLLATE = 3  # making one batch of many samples
    TOKENIZE = 4  # text to numbers
    DETOKENIZE = 5  # and back


# Frames are spelt "file.py(LINE): function", built-ins "<built-in method NAME of TYPE object …>".
_NAMES: tuple[tuple[InputWork, str], ...] = (
    (
        InputWork.DETOKENIZE,
        r"\): (\w*detokeni[sz]\w*|convert_(tokens_to_string|ids_to_tokens)|batch_decode)$"
        r"|(tokenization\w*|tokenizers/.*|tiktoken/.*|sentencepiece/.*)\.py\(\d+\): _?decode\w*$"
        r"|method (decode\w*|id_to_token) of (tokenizers|tiktoken|sentencepiece)",
    ),
    (
        InputWork.TOKENIZE,
        r"\): \w*(?<!de)tokeni[sz](e|er|ation)\w*$|^(tokenizers|tiktoken|sentencepiece|sacremoses)/"
        r"|transformers/(\w+/)*tokenization_\w+\.py|^nltk/tokenize/|^spacy/tokenizer"
        r"|method encode\w* of (tokenizers|tiktoken|sentencepiece)",
    ),
    (
        InputWork.DECODE,
        r"PIL/\w*(ImageFile|ImagePlugin)\.py\(\d+\): load|of ImagingDecoder object"
        r"|built-in function (imread|imdecode)>|torchvision/io/|^image::decode|torchvision::decode"
        r"|^(av|imageio|torchcodec|turbojpeg|decord|soundfile|librosa)/|torchaudio/.*: load$"
        r"|method decode of av\.",
    ),
    (
        InputWork.FILES,
        r"built-in function (open|open_code|stat|lstat|scandir|listdir)>"
        r"|method (read|readline|readlines|readinto|read1) of _io\."
        r"|numpy/lib/(_npyio_impl|npyio)\.py\(\d+\): (load|loadtxt|genfromtxt)$"
        r"|^pathlib(/\w+)?\.py\(\d+\): (read_bytes|read_text|open)$|PIL/Image\.py\(\d+\): open$"
        r"|pandas/io/.*: read_\w+$|^(h5py|zipfile|tarfile|gzip|csv|json|zarr|lmdb)(/|\.py)"
        r"|torch/serialization\.py\(\d+\): load$",
    ),
    (InputWork.COLLATE, r"torch/utils/data/_utils/collate\.py"),
)
_COMPILED = tuple((kind, regex(pattern)) for kind, pattern in _NAMES)


def input_work_of_name(name: str) -> InputWork | None:
    """The kind of work that the name of a Python frame or built-in speaks of, or None."""
    return next((kind for kind, pattern in _COMPILED if pattern.search(name)), None)


@once_per_trace
def input_work(trace: Trace) -> Codes:
    """The kind of each row of ``host_ops`` that begins such work on the thread of the steps.

    Only the outermost row of a piece of work has a kind: a file that is read by a decoder is part
    of the decoding.
    """
    host = trace.host_ops
    if host is None or not len(host):
        return np.zeros(0, np.uint8)
    by_name = np.zeros(len(trace.names), np.uint8)
    python = host["kind"] == HostKind.PYTHON
    for position in distinct(host["name"][python]).tolist():
        by_name[position] = input_work_of_name(trace.names[position]) or 0
    code = np.where(python & (host["thread"] == main_thread(trace)), by_name[host["name"]], 0)
    chain = parents(host)
    outside = np.append(nearest(chain, code > 0), len(host))[chain] == len(host)
    found: Codes = np.where(outside, code, 0).astype(np.uint8)
    return found
