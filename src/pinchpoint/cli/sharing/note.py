"""Keep a note beside a recording or a run; serve shows it."""

from datetime import datetime
from pathlib import Path

from pinchpoint.cli.output import show_plainly, wrote
from pinchpoint.errors import UsageError
from pinchpoint.replacing import in_turn, replacing
from pinchpoint.run_folder.notes import note_file, note_of


def command(recording: Path, /, *text: str) -> int:
    """Add a line to the note of a recording or run folder, with the day; without text, show it.

    Parameters
    ----------
    recording
        A recording, or a run folder.
    text
        What to remember, such as what was changed before this run.
    """
    if not recording.exists():
        raise UsageError(f"{recording}: no such recording", hint="pinchpoint note RUN TEXT")
    if not text:
        show_plainly(f"{note_of(recording) or 'no note'}\n")
        return 0
    file = note_file(recording)
    line = f"{datetime.now().astimezone():%Y-%m-%d} {' '.join(text)}\n"
    try:
        with in_turn(file.parent):
            earlier = file.read_bytes() if file.exists() else b""
            with replacing(file) as beside:
                beside.write_bytes(earlier + line.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", hint="is the folder writable?") from None
    wrote(file)
    return 0
