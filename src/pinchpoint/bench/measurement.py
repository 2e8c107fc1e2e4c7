"""What surrounds every measurement: the lock, the folder, the environment before and after."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.bench.folders import Session, start_session, write_atomic, write_json
from pinchpoint.bench.machine import disturbances, measuring
from pinchpoint.bench.metrics import encode
from pinchpoint.bench.result import RESULT_FILE
from pinchpoint.bench.run import RunOptions
from pinchpoint.monitor.environment import environment, full_fingerprint


@dataclass(frozen=True)
class Measurement:
    """A session in progress."""

    session: Session
    environment: Mapping[str, Any]
    warnings: tuple[str, ...]

    def options(self, options: RunOptions) -> RunOptions:
        """The options, with the identity of this session and its environment."""
        return replace(
            options,
            session_id=self.session.session_id,
            env_sha256=full_fingerprint(self.environment),
        )

    def finish(self, result: msgspec.Struct, **facts: Any) -> Path:
        """Write ``result.json`` and close the session; returns the file."""
        path = self.session.folder / RESULT_FILE
        write_atomic(path, encode(result))
        self.session.finish("complete", **facts)
        return path


@contextmanager
def measurement(kind: str, asked: Mapping[str, Any], folder: Path | None) -> Iterator[Measurement]:
    """A new session folder with its environment record, while the machine is ours.

    Whatever ends the block early is noted in ``session.json``.
    """
    busy = disturbances()
    with measuring() as others, start_session(kind, asked, folder) as session:
        record = environment()
        write_json(session.folder / "env.json", record)
        yield Measurement(session, record, (*busy, *others))
