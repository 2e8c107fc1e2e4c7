"""The same map on a Ray cluster: the extra ``[ray]``.

Ray sends a task again when its worker or node is lost. Tasks in flight are bounded, and results are
taken out of Ray's store as they come.
"""

import re
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from pinchpoint.errors import MissingExtra, UsageError, install_hint
from pinchpoint.importers.rank_files import RankFile
from pinchpoint.jobs.engines import ATTEMPTS, IN_FLIGHT_PER_WORKER, Work
from pinchpoint.jobs.read_rank import read_rank
from pinchpoint.report.ranks.records import RankRecord, encode_record

KNOCK_SECONDS = 5.0
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
    _knock(address)
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


def _knock(address: str | None) -> None:
    """Ray tries for minutes to reach a head that is not there."""
    place = re.fullmatch(r"(?:ray://)?([^:/]+):(\d{1,5})", address or "")
    if place is None:
        return
    try:
        socket.create_connection((place[1], int(place[2])), KNOCK_SECONDS).close()
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
