"""Runs the map over all ranks: in this process, in a pool of processes, or through any Executor.

Results come as they are done, in any order. No more tasks are in flight than workers can take soon,
so neither queue nor results pile up. A process that dies takes only its own files with it: they
are tried again, one at a time, so that the guilty one is known.
"""

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import psutil

from pinchpoint.importers.ranks.files import RankFile
from pinchpoint.jobs.rank_map import failed, read_rank
from pinchpoint.report.documents.rank_records import encode_record

Work = Callable[[RankFile], bytes]
Lost = Callable[[RankFile, str], bytes]  # the same of a file that a worker died of: why

ATTEMPTS = 3  # a file that ends three workers is the cause
IN_FLIGHT_PER_WORKER = 2  # one at work, one ready
SMALL_JOB = 16  # files, and
SMALL_JOB_BYTES = 4_000_000  # on disk: starting processes takes longer than reading these
# Measured with recordings of 9 to 33 MB: 30 MB for the interpreter and 1.4 to 3 bytes a raw byte.
WORKER_BYTES, BYTES_PER_RAW_BYTE = 150_000_000, 3
USUAL_RATIO = 15  # raw over compressed, where the file does not say
MEMORY_SHARE = 0.8  # of what is free


def run(
    files: Sequence[RankFile], executor: Executor | None = None, work: Work = read_rank
) -> Iterator[bytes]:
    """Encoded records of all files, through an executor or the processes of this machine."""
    if executor is not None:
        yield from _through(executor, files, work, 4 * IN_FLIGHT_PER_WORKER)
        return
    workers = workers_for(files)
    small = len(files) <= SMALL_JOB
    if workers == 1 or (small and sum(_bytes_on_disk(f.path) for f in files) < SMALL_JOB_BYTES):
        yield from map(work, files)
        return
    yield from in_processes(files, workers, work)


def in_processes(
    files: Sequence[RankFile], workers: int, work: Work = read_rank, lost: Lost | None = None
) -> Iterator[bytes]:
    """The same in ``workers`` processes; in this one where no other can be started."""
    if not files:
        return
    if not _can_start():
        yield from map(work, files)
        return
    lost = lost or _lost
    suspects: list[RankFile] = []
    waiting = deque(files)
    while waiting:
        with _pool(workers) as pool:
            most = workers * IN_FLIGHT_PER_WORKER
            yield from _until_broken(pool, waiting, suspects, work, lost, most)
    for file in suspects:
        yield _alone(file, work, lost)


def _can_start() -> bool:
    """Whether a process of this Python can be started here, and be spoken to.

    It may be no program of this user, and where there is no shared memory there are no semaphores.
    """
    if not os.access(sys.executable, os.X_OK):
        return False
    try:
        get_context("spawn").Lock()
    except (OSError, ImportError):
        return False
    return True


def workers_for(files: Iterable[RankFile]) -> int:
    """How many processes the cores and the free memory of this machine allow."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    largest = max((_raw_bytes(f.path) for f in files), default=0)
    each = WORKER_BYTES + BYTES_PER_RAW_BYTE * largest
    try:
        fit = int(MEMORY_SHARE * psutil.virtual_memory().available / each)
    except OSError:  # no /proc: nobody knows what is free
        fit = 1
    return max(min(cores or 1, fit), 1)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with the block: at once where it is left early."""
    with ProcessPoolExecutor(workers, mp_context=_Apart(), initializer=_end_with_parent) as pool:
        try:
            yield pool
        except BaseException:
            for process in list((pool._processes or {}).values()):  # public from Python 3.14 on
                process.terminate()
            raise
        finally:
            # A worker that was started while the pool broke is not ended by it, and waited for.
            if pool._broken:
                for process in list((pool._processes or {}).values()):
                    process.kill()


class _Worker(SpawnProcess):
    """A process that does not run the program which called us once more.

    Python does so in each that it starts, for functions that are written there; ours are not, and
    a script with no ``if __name__ == "__main__"`` would do all its work again and again.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 - its name
        program = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # what is asked for the file to run
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = program


class _Apart(SpawnContext):
    Process = _Worker


def _end_with_parent() -> None:
    """A worker waits for work through a pipe whose other end it holds as well, so it would not
    notice that the process that started it was killed."""

    def wait(parent: BaseProcess) -> None:
        parent.join()
        os._exit(1)

    if (parent := parent_process()) is not None:
        Thread(target=wait, args=(parent,), daemon=True).start()


def _submitted(pool: Executor, work: Work, file: RankFile) -> Future[bytes]:
    """Hand over one file. Ctrl-C reaches every process of a terminal: those that this starts leave
    it to this one, which ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        return _taken(pool, work, file)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        return _taken(pool, work, file)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _taken(pool: Executor, work: Work, file: RankFile) -> Future[bytes]:
    try:
        return pool.submit(work, file)
    except OSError as error:
        if getattr(pool, "_broken", False):  # just now, and its pipes are closed already
            raise BrokenExecutor from error
        raise


def _until_broken(
    pool: Executor,
    waiting: deque[RankFile],
    suspects: list[RankFile],
    work: Work,
    lost: Lost,
    most: int,
) -> Iterator[bytes]:
    """Results until all is done or a process dies; what was in flight then becomes suspect."""
    running: dict[Future[bytes], RankFile] = {}
    while waiting or running:
        try:
            while waiting and len(running) < most:
                running[_submitted(pool, work, waiting[0])] = waiting[0]
                waiting.popleft()
        except BrokenExecutor:
            suspects += running.values()
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            file = running.pop(future)
            error = future.exception()
            if error is None:
                yield future.result()
            elif isinstance(error, BrokenExecutor):
                suspects.append(file)
            else:
                yield lost(file, _why(error))


def _alone(file: RankFile, work: Work, lost: Lost) -> bytes:
    error: BaseException | None = None
    for _ in range(ATTEMPTS - 1):
        with _pool(1) as pool:
            future = _submitted(pool, work, file)
            error = future.exception()
            if error is None:
                return future.result()
    return lost(file, _why(error))


def _through(
    executor: Executor, files: Sequence[RankFile], work: Work, most: int
) -> Iterator[bytes]:
    """Through somebody else's executor, which cannot be made anew; lost tasks are sent again."""
    waiting = deque((file, 1) for file in files)
    running: dict[Future[bytes], tuple[RankFile, int]] = {}
    while waiting or running:
        while waiting and len(running) < most:
            task = waiting.popleft()
            running[executor.submit(work, task[0])] = task
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            file, attempt = running.pop(future)
            error = future.exception()
            if error is None:
                yield future.result()
            elif attempt < ATTEMPTS and not isinstance(error, BrokenExecutor):
                waiting.append((file, attempt + 1))
            else:
                yield _lost(file, _why(error))


def _lost(file: RankFile, why: str) -> bytes:
    return encode_record(failed(file, f"{file.path}: {why}"))


def _why(error: BaseException | None) -> str:
    if error is None or isinstance(error, BrokenExecutor):
        return "the process that read it died; out of memory?"
    return f"{type(error).__name__}: {error}"


def _raw_bytes(path: str) -> int:
    """Size of the text in a file; of a large or remote one an estimate."""
    on_disk = _bytes_on_disk(path)
    if not path.endswith(".gz"):
        return on_disk
    try:
        with Path(path).open("rb") as file:
            file.seek(-4, os.SEEK_END)
            said = int.from_bytes(file.read(4), "little")  # RFC 1952: modulo 4 GiB
    except (OSError, ValueError):
        return USUAL_RATIO * on_disk
    return said if on_disk < said < USUAL_RATIO * 10 * on_disk else USUAL_RATIO * on_disk


def _bytes_on_disk(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


__all__ = ["ATTEMPTS", "Lost", "Work", "in_processes", "run", "workers_for"]
