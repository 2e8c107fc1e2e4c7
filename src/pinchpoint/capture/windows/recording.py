"""What became of a recording window: a file that is whole, compressed and counted, or why not."""

import zlib
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 1 << 20
_LEVEL = 1  # 8 times smaller at 100 MB/s; higher levels stall the program for little
_KERNEL = b'"cat": "kernel"'
_OPERATOR = b'"cat": "cpu_op"'


class BrokenTrace(Exception):
    """The profiler could not write its file; the text says why."""


@dataclass(frozen=True)
class TraceFile:
    """A recording that is complete on disk."""

    name: str
    bytes: int
    kernels: int | None  # None: not counted in this format
    operators: int | None


def pack(raw: Path, target: Path) -> TraceFile:
    """Compress ``raw`` into ``target`` and remove it.

    ``target`` appears only when it is complete. Raises BrokenTrace; then neither file is left.
    """
    beside = target.with_name(f".{target.name}.tmp")
    try:
        counts = _copy(raw, beside)
        size = beside.stat().st_size
        beside.replace(target)
    except OSError as error:
        raise BrokenTrace(f"{target.name}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)
        raw.unlink(missing_ok=True)
    return TraceFile(target.name, size, counts[_KERNEL], counts[_OPERATOR])


def _copy(raw: Path, target: Path) -> dict[bytes, int]:
    counts = {_KERNEL: 0, _OPERATOR: 0}
    squeeze = zlib.compressobj(_LEVEL, wbits=31)
    tail = last = b""
    with raw.open("rb") as source, target.open("wb") as sink:
        while chunk := source.read(_CHUNK):
            seen = tail + chunk
            for text in counts:
                counts[text] += seen.count(text)
            keep = max(map(len, counts)) - 1  # a word may straddle two chunks
            tail = _without_whole_words(seen[-keep:], counts)
            sink.write(squeeze.compress(chunk))
            last = chunk
        sink.write(squeeze.flush())
    if not last.rstrip().endswith((b"}", b"]")):
        raise BrokenTrace(f"{target.name[1:-4]}: the profiler's file is cut off; is the disk full?")
    return counts


def _without_whole_words(tail: bytes, words: dict[bytes, int]) -> bytes:
    """The end of a chunk, unless it holds a whole word, which has been counted already."""
    for word in words:
        at = tail.rfind(word)
        if at >= 0:
            tail = tail[at + len(word) :]
    return tail


NOT_BEGUN = "the recording had not begun when the program ended"


@dataclass(frozen=True)
class Recording:
    """A file, or the problem that prevented it; times of the day at both ends; whole steps."""

    file: TraceFile | None
    problem: str | None
    start_unix_ns: int
    end_unix_ns: int
    steps: int
