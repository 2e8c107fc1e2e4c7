"""A folder of ``pinchpoint bench``: figures, and at times a profile that was recorded beside them.

The profile is a run folder of its own, and what is read. Figures alone are no recording.
"""

from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.trace import Trace

FORMAT = "bench folder"
FILES = ("a folder with session.json", "pinchpoint bench run --profile")
READS: tuple[str, ...] = (
    "host",
    "calls",
    "device",
    "steps",
    "memory",
    "counters",
    "kernel counters",
    "compiled operations",
)
NOT_READ = "figures: pinchpoint compare"
SESSION_FILE = "session.json"  # bench/folders.py writes it first of all
PROFILES = "profile*"  # profile; of a comparison profile-A and profile-B


def claims(path: Path, head: bytes) -> bool:
    """A folder with a ``session.json``."""
    return path.is_dir() and (path / SESSION_FILE).is_file()


def profiles(folder: Path) -> list[Path]:
    """The run folders in it."""
    from pinchpoint.importers import run_folder

    return [p for p in sorted(folder.glob(PROFILES)) if run_folder.claims(p, b"")]


def read(path: Path) -> Trace:
    """The trace of its profile; UnreadableFile where it has none, or two to compare."""
    found = profiles(path)
    if len(found) == 1:
        from pinchpoint.importers import run_folder

        return run_folder.read(found[0])
    if found:
        raise UnreadableFile(
            f"{path}: a folder of pinchpoint bench with {len(found)} profiles",
            hint=f"pinchpoint compare {' '.join(map(str, found[:2]))}",
        )
    raise UnreadableFile(
        f"{path}: a folder of pinchpoint bench with figures, but no profile",
        hint=f"pinchpoint compare {path} OTHER compares figures; bench run --profile records too",
    )
