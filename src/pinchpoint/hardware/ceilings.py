"""What one machine was measured to do: the document that ``pinchpoint ceilings`` writes.

Kept as JSON, keyed by the fingerprint of device, driver, power limit and clocks, so that another
driver or power limit does not inherit the figures of the old one.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import UnreadableFile
from pinchpoint.json_text import decoded
from pinchpoint.replacing import read_bounded, replacing

SCHEMA = "pinchpoint.ceilings/1"
# FLOP/s, bytes/s and ns alike; the fastest product of one device is some 1e16 FLOP/s.
_LEAST, _MOST = 1.0, 1e20


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, how it was taken, and under which clocks."""

    what: str  # gemm, copy, triad, read, launch-latency, h2d-pinned, …
    value: float
    unit: str  # FLOP/s, bytes/s, ns
    dtype: str | None = None
    mode: str | None = None  # burst, sustained
    at: str = ""  # the shape or size that gave it
    spread_ratio: float | None = None  # (90th - 10th percentile) / median of the samples
    waited_ratio: float | None = None  # of the time, for a CPU that others had
    sm_clock_hz: float | None = None  # while it ran
    power_w: float | None = None
    throttled: tuple[str, ...] = ()  # clock event reasons that were seen
    data_sheet_ratio: float | None = None  # of the data sheet's figure
    measured_at: str | None = None  # of a figure that is older than its document


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that cannot be true, and why it was not kept."""

    what: str
    value: float
    unit: str
    why: str
    dtype: str | None = None
    mode: str | None = None


class Ceilings(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of one device."""

    schema: str = SCHEMA
    device: str
    measured_at: str  # ISO 8601, UTC
    fingerprint: dict[str, Any]
    measurements: tuple[Measurement, ...]
    refused: tuple[Refused, ...] = ()
    seconds: float | None = None

    @property
    def gemm_flop_per_s(self) -> dict[str, float]:
        """The best product by type: burst where there is one."""
        best: dict[str, float] = {}
        for m in self.measurements:
            if m.what == "gemm" and m.dtype is not None and m.mode == "burst":
                best[m.dtype] = max(best.get(m.dtype, 0.0), m.value)
        return best

    @property
    def memory_bytes_per_s(self) -> float | None:
        """The best of the streaming tests."""
        streams = [m.value for m in self.measurements if m.what in {"copy", "triad", "read"}]
        return max(streams, default=None)

    def find(
        self, what: str, dtype: str | None = None, mode: str | None = None
    ) -> Measurement | None:
        """A figure by what it is, or None."""
        for m in self.measurements:
            if m.what == what and (dtype in (None, m.dtype)) and (mode in (None, m.mode)):
                return m
        return None


def key_of(fingerprint: dict[str, Any]) -> str:
    """A short name for a fingerprint."""
    import hashlib

    text = msgspec.json.encode(dict(sorted(fingerprint.items())))
    return hashlib.sha256(text).hexdigest()[:16]


def folder() -> Path:
    """Where ceilings are kept: ``$PINCHPOINT_CEILINGS``, else the user's data folder."""
    if (chosen := os.environ.get("PINCHPOINT_CEILINGS")) is not None:
        return Path(chosen)
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local/share")
    return Path(data) / "pinchpoint" / "ceilings"


def save(ceilings: Ceilings, where: Path | None = None) -> Path:
    """Write to the store, or to a file of choice; returns the path."""
    path = where or folder() / f"{key_of(ceilings.fingerprint)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(ceilings), indent=1))
    return path


def with_older(new: Ceilings, where: Path | None = None) -> Ceilings:
    """``new``, and the figures kept of the same device, driver and clocks that it does not have.

    A busy machine gives figures that are refused; it must not take the good ones of a quiet one.
    """
    try:
        older = load((where or folder()) / f"{key_of(new.fingerprint)}.json")
    except (OSError, UnreadableFile):
        return new  # there are none
    has = {(m.what, m.dtype, m.mode) for m in new.measurements}
    kept = tuple(
        msgspec.structs.replace(m, measured_at=m.measured_at or older.measured_at)
        for m in older.measurements
        if (m.what, m.dtype, m.mode) not in has
    )
    return msgspec.structs.replace(new, measurements=(*new.measurements, *kept))


def load(path: Path) -> Ceilings:
    """Read one document; UnreadableFile if it is none. Figures of no machine are left out."""
    try:
        found = decoded(read_bounded(path), Ceilings)
    except msgspec.DecodeError as error:
        raise UnreadableFile(
            f"{path}: no ceilings document ({error})", hint="write one: pinchpoint ceilings"
        ) from None
    if found.schema != SCHEMA:
        raise UnreadableFile(
            f"{path}: {found.schema} is not {SCHEMA}", hint="measure again: pinchpoint ceilings"
        )
    sound = tuple(m for m in found.measurements if _LEAST <= m.value <= _MOST)
    return msgspec.structs.replace(found, measurements=sound)


def stored(device: str | None, where: Path | None = None) -> Ceilings | None:
    """The newest stored ceilings of a device by its reported name; None if there are none."""
    if device is None:
        return None
    mine = (c for c in _kept(where or folder()) if c.device == device)
    return max(mine, key=lambda c: c.measured_at, default=None)


def newest(where: Path | None = None) -> Ceilings | None:
    """The newest stored ceilings of any device; None if there are none."""
    return max(_kept(where or folder()), key=lambda c: c.measured_at, default=None)


def _kept(place: Path) -> Iterator[Ceilings]:
    for path in sorted(place.glob("*.json")) if place.is_dir() else ():
        try:
            yield load(path)
        except UnreadableFile:
            continue  # another program's file, or one of a later version
