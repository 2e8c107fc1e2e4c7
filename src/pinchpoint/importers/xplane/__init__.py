"""XPlane files (``.xplane.pb``), the full form of what ``jax.profiler`` and XLA record.

``space`` decodes the message, ``assemble`` makes tables of its planes.
"""

from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.files.wire import MalformedMessage
from pinchpoint.importers.xplane.assemble import FORMAT, assemble
from pinchpoint.importers.xplane.space import Plane, read_planes
from pinchpoint.trace import Trace

__all__ = ["FILES", "FORMAT", "NOT_READ", "READS", "claims", "read"]

FILES = (".xplane.pb .xplane.pb.gz", "JAX and XLA")
READS: tuple[str, ...] = ("host", "calls", "device", "steps", "memory", "compiled operations")
NOT_READ = "of HLO programs all but lines, names, FLOPs and bytes of operations"

_PLANE, _ID, _NAME = 0x0A, 0x08, 0x12  # first bytes of fields: a plane, and inside its id or name
_LONGEST_LENGTH = 10  # bytes of a varint
_SIGNS = (b"/host:", b"/device:", b"Task Environment")


def claims(path: Path, head: bytes) -> bool:
    """A message that begins with a plane, and names one."""
    if head[:1] != bytes([_PLANE]):
        return False
    at = next((i for i in range(1, _LONGEST_LENGTH + 1) if head[i : i + 1] < b"\x80"), None)
    if at is None or head[at + 1 : at + 2] not in (bytes([_ID]), bytes([_NAME])):
        return False
    return ".xplane.pb" in path.name or any(sign in head for sign in _SIGNS)


def read(path: Path) -> Trace:
    """The trace; UnreadableFile if the message is damaged or holds no event."""
    with unpacked(path) as plain:
        content = plain.read_bytes()
    try:
        return _of_planes(path, read_planes(memoryview(content)))
    except MalformedMessage as error:
        raise UnreadableFile(
            f"{path}: a damaged XPlane file ({error})",
            hint="copy it again, or record it again; the .trace.json.gz beside it may be whole",
        ) from None


def _of_planes(path: Path, planes: list[Plane]) -> Trace:
    if not any(line.events for plane in planes for line in plane.lines):
        raise UnreadableFile(
            f"{path}: an XPlane file without a single event",
            hint="record again: the work has to run between start_trace and stop_trace",
        )
    return assemble(path, planes)
