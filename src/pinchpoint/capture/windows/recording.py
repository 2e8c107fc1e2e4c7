"""What became of a recording window: a file that is whole, compressed and counted, or why not."""

import shutil
import sys
import time
import zlib
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from socket import gethostname
from typing import Any

from pinchpoint.capture.settings import BESIDE, Kind
from pinchpoint.capture.windows.cupti import keep_attached
from pinchpoint.capture.windows.threads import main_thread_held
from pinchpoint.frozen import dataclass
from pinchpoint.inside import live_arrays
from pinchpoint.run_folder.layout import NAMES, TRACES

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
    window: Kind = "times"
    stacks: bool = False  # holds names and their lines, asked for or not
    provisional: bool = False  # an early one, kept for its names until others come

    def remove(self, run: Path) -> None:
        """Take its file out of a run folder again."""
        if self.file is not None:
            part = NAMES if self.window in BESIDE else TRACES
            remove_file(run / part / self.file.name)

    def is_same_file(self, later: "Recording") -> bool:
        """JAX names files by the second, so that the later of two may have replaced the other."""
        return bool(self.file and later.file and self.file.name == later.file.name)


def remove_file(path: Path) -> None:
    """Remove a recording; of an XPlane file the other files that the profiler wrote beside it."""
    if path.name.endswith(".xplane.pb"):
        shutil.rmtree(path.parent, ignore_errors=True)  # of this recording alone
    else:
        path.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------------------
# A bounded recording with the profiler of JAX or torch_xla: an XPlane file below the traces.


HELD_UP = "the main thread stayed in one call, during which nothing can begin safely,"


MAY_END = (
    "pinchpoint: XLA unloads CUPTI now, and here (not x86-64, or code in memory may not be changed)"
    " nothing prevents it: if the program fails with CUDA_ERROR_LAUNCH_FAILED, run it again with"
    " XLA_FLAGS=--xla_gpu_enable_command_buffer="
)


class JaxWindow:
    """One recording of everything that JAX does in this process.

    XLA starts and finalizes CUPTI at its two ends. Where work is under way on a GPU, or is launched
    meanwhile, the program may die of it later (CUDA_ERROR_ILLEGAL_ADDRESS; jax issue 40260): so the
    device has done all, the main thread waits, and CUPTI stays (``keep_attached``).
    """

    SUFFIX = "jax"  # of the folder that the profiler fills

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder = folder / f"{stem}.{self.SUFFIX}"
        self._start_unix_ns = 0
        self._problem = NOT_BEGUN
        self.steps = -1

    def prime(self) -> None:
        """Find the profiler. Raises RuntimeError if it is too old."""
        self._profiler()

    def open(self) -> None:
        """Begin, one step early.

        The name of a step goes into the trace only if the trace had begun when the program made
        the annotation, before it entered it; so the step under way has none.
        """
        with self._nothing_under_way() as still:
            if not still:
                self._problem = HELD_UP
                return
            self._profiler().start_trace(str(self._folder))
            self._start_unix_ns = time.time_ns()

    def step(self) -> None:
        """Count."""
        self.steps += 1

    def may_end(self, *, step_ended: bool) -> bool:
        """At any time."""
        del step_ended
        return True

    def close(self, *, step_ended: bool = False) -> Recording:
        """Stop, and find the file that the profiler wrote."""
        end_ns, start_ns = time.time_ns(), self._start_unix_ns
        steps = max(self.steps + step_ended, 0)
        problem = self._problem if self.steps < 0 or not start_ns else None
        try:
            if start_ns:
                live_arrays.look()
                with self._nothing_under_way():
                    if _jax_on_gpu() and not keep_attached():
                        sys.stderr.write(f"{MAY_END}\n")
                    self._stop_jax()
        except (OSError, RuntimeError) as error:
            problem = str(error).splitlines()[0]
        if problem is not None:
            return Recording(None, problem, start_ns or end_ns, end_ns, steps)
        return _newest(self._folder, start_ns, end_ns, steps)

    def _stop_jax(self) -> None:
        """Stop, and write what was recorded.

        ``stop_trace`` also writes it as JSON, for a viewer: of a busy window that takes several
        times as long as all else. What it does beside that is done here, as far as this JAX has it
        as the known ones do.
        """
        inner = sys.modules.get("jax._src.profiler")
        state: Any = getattr(inner, "_profile_state", None)
        session: Any = getattr(state, "profile_session", None)
        if not all(map(hasattr, (session, state, state), ("stop", "reset", "lock"))):
            self._profiler().stop_trace()
            return
        with state.lock:
            recorded = session.stop()
            state.reset()
            getattr(inner, "clear_metadata", tuple)()
        if not isinstance(recorded, bytes):
            raise RuntimeError("the profiler returned no recording")
        when = time.strftime("%Y_%m_%d_%H_%M_%S", time.localtime())
        target = self._folder / "plugins" / "profile" / when / f"{gethostname()}.xplane.pb"
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.tmp")
        beside.write_bytes(recorded)
        beside.replace(target)

    def _nothing_under_way(self) -> AbstractContextManager[bool]:
        return main_thread_held(_let_jax_catch_up) if _jax_on_gpu() else nullcontext(True)

    @staticmethod
    def _profiler() -> Any:
        return sys.modules["jax"].profiler


def _jax_on_gpu() -> bool:
    ask = getattr(sys.modules.get("jax"), "default_backend", None)
    return ask is not None and ask() in ("gpu", "cuda", "rocm")


def _let_jax_catch_up() -> None:
    """Wait for all that JAX has launched: what came of it, or was written over for it."""
    for array in sys.modules["jax"].live_arrays():
        with suppress(Exception):  # donated meanwhile, or it failed: the program hears of that
            array.block_until_ready()


def _newest(folder: Path, start_ns: int, end_ns: int, steps: int) -> Recording:
    """The newest XPlane file below ``folder``; an answer with a problem if there is none."""
    found = sorted(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        return Recording(None, "the profiler wrote no XPlane file", start_ns, end_ns, steps)
    size = found[-1].stat().st_size
    name = str(found[-1].relative_to(folder.parent))
    return Recording(TraceFile(name, size, None, None), None, start_ns, end_ns, steps)


class XlaWindow(JaxWindow):
    """One recording of what a torch_xla program does on its TPU or other XLA device."""

    SUFFIX = "xla"

    def _stop_jax(self) -> None:
        self._profiler().stop_trace()

    def _nothing_under_way(self) -> AbstractContextManager[bool]:
        return nullcontext(True)

    @staticmethod
    def _profiler() -> Any:
        profiler = import_module("torch_xla.debug.profiler")
        if not hasattr(profiler, "start_trace"):
            raise RuntimeError("this torch_xla is too old: its profiler has no start_trace")
        return profiler


# ------------------------------------------------------------------------------------------------
# Which recordings of a process are kept.


def keep_best(
    kept: list[Recording], new: Recording, *, whole: bool, folder: Path, names_follow: bool = True
) -> bool:
    """Add ``new`` and say so, unless it holds no step and others do.

    A window of steady steps takes the place of an early one. That one is removed, or kept for its
    names: until others come where they follow, and the program does not end before. Names beside an
    early one leave it as it is.
    """
    early = [r for r in kept if r.window == "early" and r.file]
    if not (whole and new.file) and (early or new.window in BESIDE):
        new.remove(folder)
        return False
    if new.window == "names":
        for one in [r for r in kept if r.provisional]:
            kept.remove(one)
            one.remove(folder)
    for one in early if new.window not in BESIDE else []:
        kept.remove(one)
        if not one.stacks or new.window != "times":
            one.remove(folder)
        elif one.file is not None and _moved(folder, one.file.name):
            kept.append(replace(one, window="names", provisional=names_follow))
    kept.append(new)
    kept.sort(key=lambda one: one.window in BESIDE)
    return True


def _moved(folder: Path, name: str) -> bool:
    """From among the traces to those for names; False where somebody has removed it."""
    (folder / NAMES).mkdir(parents=True, exist_ok=True)
    try:
        (folder / TRACES / name).replace(folder / NAMES / name)
    except FileNotFoundError:
        return False
    return True
