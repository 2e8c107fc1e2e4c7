"""A note that a person keeps beside a recording: a text file, so that it goes where it goes."""

from pathlib import Path

RUN_NOTE = "note.md"  # in a run folder
SUFFIX = ".note.md"  # after the name of a file
LONGEST_BYTES = 16 << 10  # that are read: a note is a paragraph


def note_file(recording: Path) -> Path:
    """Where the note of a recording is kept."""
    if recording.is_dir():
        return recording / RUN_NOTE
    return recording.with_name(recording.name + SUFFIX)


def note_of(recording: Path) -> str:
    """The note; empty where there is none, or it cannot be read."""
    file = note_file(recording)
    if file.is_symlink():  # may lead out of what is served
        return ""
    try:
        with file.open("rb") as opened:
            return opened.read(LONGEST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
