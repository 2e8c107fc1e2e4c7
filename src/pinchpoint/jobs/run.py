"""A job from its files to its report: on this machine, on a cluster, or in shards."""

import re
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from pinchpoint.errors import MissingExtra, UsageError, install_hint
from pinchpoint.frozen import dataclass
from pinchpoint.importers.ranks.files import RankFile, RankFiles, find_rank_files
from pinchpoint.jobs.engines import ATTEMPTS, IN_FLIGHT_PER_WORKER, Work, run
from pinchpoint.jobs.parts import read_parts, write_part
from pinchpoint.jobs.rank_map import read_rank
from pinchpoint.replacing import scratch_folder
from pinchpoint.report.assemble.ranks import report_on
from pinchpoint.report.documents.rank_records import (
    LeftOutFile,
    PartHeader,
    RankRecord,
    encode_record,
)
from pinchpoint.report.documents.ranks import RanksReport

Progress = Callable[[int, int], None]  # files that are done, files in all


@dataclass(frozen=True)
class OnRay:
    """Run on a Ray cluster: the one at ``address``, or one that is started on this machine."""

    address: str | None = None


Engine = Executor | OnRay | None  # None: processes on this machine


def diagnose_ranks(
    places: Sequence[str | Path],
    engine: Engine = None,
    progress: Progress | None = None,
    parquet: Path | None = None,
) -> RanksReport:
    """Everything that Pinchpoint has to say about the ranks in files, folders, globs or URLs.

    ``engine`` is any ``concurrent.futures.Executor``, Ray, or None for a pool of processes sized by
    cores and free memory. A file that cannot be read is reported and does not stop the rest.
    ``parquet`` is a folder for the tables of all ranks (extra ``[sql]``). Raises UsageError where
    there are no recordings.
    """
    found = find_rank_files(places)
    with scratch_folder() as folder:
        part = folder / "all.part"
        _write(part, found, found.files, None, engine, progress)
        return _reported([part], parquet)


def write_shard(
    places: Sequence[str | Path],
    shard: tuple[int, int],
    part: Path,
    engine: Engine = None,
    progress: Progress | None = None,
) -> int:
    """Read the files of one shard (number *i* from 1 of *n*) and write its part file.

    Every *n*-th file belongs to a shard, so that neighbours on one node come apart. Returns how
    many there were. Raises UsageError if the shard or the part file cannot be.
    """
    number, of = shard
    if not 1 <= number <= of:
        raise UsageError(f"shard {number}/{of}: not one of 1/{of} to {of}/{of}", hint="--shard 1/8")
    found = find_rank_files(places)
    try:
        return _write(part, found, found.files[number - 1 :: of], shard, engine, progress)
    except OSError as error:
        raise UsageError(
            f"{part}: cannot be written ({error.strerror or error})", hint="name another file"
        ) from None


def merge_parts(parts: Sequence[Path], parquet: Path | None = None) -> RanksReport:
    """The report from the part files of all shards; missing shards are said in it."""
    if not parts:
        raise UsageError("which parts?", hint="pinchpoint merge PART...")
    return _reported(parts, parquet)


def _reported(parts: Sequence[Path], parquet: Path | None) -> RanksReport:
    records = read_parts(parts)
    if parquet is None:
        return report_on(records)
    from pinchpoint.jobs.parquet import write_rank_rows, write_rank_tables

    write_rank_tables(records.summaries(), parquet)
    return report_on(records, partial(write_rank_rows, parquet))


def _write(
    part: Path,
    found: RankFiles,
    files: Sequence[RankFile],
    shard: tuple[int, int] | None,
    engine: Engine,
    progress: Progress | None,
) -> int:
    left_out = tuple(LeftOutFile(path=item.path, why=item.why) for item in found.left_out)
    header = PartHeader(shard=shard, files=len(found.files), left_out=left_out)
    with closing(_records(files, engine)) as records:
        return write_part(part, header, _counted(records, len(files), progress))


def _records(files: Sequence[RankFile], engine: Engine) -> Generator[bytes, None, None]:
    if isinstance(engine, OnRay):
        yield from run_on_ray(files, engine.address)
    else:
        yield from run(files, engine)


def _counted(records: Iterable[bytes], total: int, progress: Progress | None) -> Iterator[bytes]:
    for done, record in enumerate(records, 1):
        yield record
        if progress is not None:
            progress(done, total)


# ------------------------------------------------------------------------------------------------
# The same map on a Ray cluster: the extra ``[ray]``.
#
# Ray sends a task again when its worker or node is lost. Tasks in flight are bounded, and results
# are taken out of Ray's store as they come.


REACHABLE_WITHIN_S = 5.0  # a cluster in reach answers in milliseconds
_HINT = "ray start --head starts a cluster; --ray-address auto uses a running one"


def run_on_ray(
    files: Sequence[RankFile], address: str | None = None, work: Work = read_rank
) -> Iterator[bytes]:
    """Encoded records of all files. Without an address, a cluster on this machine is used.

    A cluster that is started here is stopped again; one that was running keeps running. Raises
    MissingExtra without Ray and UsageError if there is no cluster at the address.
    """
    ray = _ray()
    mine = not ray.is_initialized()
    if mine:
        _connect(ray, address)
    try:
        yield from _results(ray, files, work)
    finally:
        if mine:
            ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtra(
            "--engine ray needs Ray", hint=install_hint("ray", "ray", "fsspec")
        ) from None
    return ray


def _connect(ray: Any, address: str | None) -> None:
    _check_reachable(address)
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level="ERROR",
            include_dashboard=None if address else False,
        )
    except (ConnectionError, RuntimeError, ValueError, SystemExit) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(
            f"Ray at {address or 'this machine'}: {first}",
            hint=_HINT,
        ) from None


def _check_reachable(address: str | None) -> None:
    """Ray tries for minutes to reach a head that is not there."""
    place = re.fullmatch(r"(?:ray://)?([^:/]+):(\d{1,5})", address or "")
    if place is None:
        return
    try:
        socket.create_connection((place[1], int(place[2])), REACHABLE_WITHIN_S).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"Ray at {address}: {error}", hint=_HINT) from None


def _results(ray: Any, files: Sequence[RankFile], work: Work) -> Iterator[bytes]:
    task = ray.remote(num_cpus=1, max_retries=ATTEMPTS - 1)(work)
    most = max(int(ray.cluster_resources().get("CPU", 1)), 1) * IN_FLIGHT_PER_WORKER
    waiting = list(reversed(files))
    running: dict[Any, RankFile] = {}
    while waiting or running:
        while waiting and len(running) < most:
            file = waiting.pop()
            running[task.remote(file)] = file
        done, _ = ray.wait(list(running), num_returns=1)
        for reference in done:
            file = running.pop(reference)
            try:
                yield ray.get(reference)
            except ray.exceptions.RayError as error:
                first = str(error).splitlines()[0] if str(error) else type(error).__name__
                yield encode_record(
                    RankRecord(
                        path=file.path,
                        rank=file.rank,
                        label=file.label,
                        error=f"{file.path}: the task was lost {ATTEMPTS} times: {first}",
                    )
                )
