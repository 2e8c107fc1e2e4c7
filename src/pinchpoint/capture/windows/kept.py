"""Which recordings of a process are kept."""

from pathlib import Path

from pinchpoint.capture.settings import BESIDE
from pinchpoint.capture.windows.recording import Recording
from pinchpoint.run_folder.layout import NAMES, TRACES


def keep_best(kept: list[Recording], new: Recording, *, whole: bool, folder: Path) -> bool:
    """Add ``new`` and say so, unless it holds no step and others do.

    A window of steady steps takes the place of an early one. Files that are not kept are removed.
    """
    early = [r for r in kept if r.window == "early" and r.file]
    if not (whole and new.file) and (early or new.window in BESIDE):
        _remove(new, folder)
        return False
    for one in early:
        _remove(one, folder)
        kept.remove(one)
    kept.append(new)
    return True


def _remove(recording: Recording, folder: Path) -> None:
    if recording.file is not None:
        part = NAMES if recording.window in BESIDE else TRACES
        Path(folder, part, recording.file.name).unlink(missing_ok=True)
