"""A job from its files to its report: on this machine, on a cluster, or in shards."""

import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pinchpoint.errors import UsageError
from pinchpoint.importers.rank_files import RankFile, RankFiles, find_rank_files
from pinchpoint.jobs.engines import run
from pinchpoint.jobs.parts import read_parts, write_part
from pinchpoint.report.ranks.build import report_on
from pinchpoint.report.ranks.document import RanksReport
from pinchpoint.report.ranks.records import LeftOutFile, PartHeader

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
    with tempfile.TemporaryDirectory(prefix="pinchpoint-ranks-") as folder:
        part = Path(folder) / "all.part"
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
    if parquet is not None:
        from pinchpoint.jobs.parquet import write_rank_tables

        write_rank_tables(records.summaries(), parquet)
    return report_on(records)


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
        from pinchpoint.jobs.ray import run_on_ray

        yield from run_on_ray(files, engine.address)
    else:
        yield from run(files, engine)


def _counted(records: Iterable[bytes], total: int, progress: Progress | None) -> Iterator[bytes]:
    for done, record in enumerate(records, 1):
        yield record
        if progress is not None:
            progress(done, total)
