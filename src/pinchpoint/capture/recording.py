"""What became of a recording window."""

from dataclasses import dataclass

from pinchpoint.capture.trace_file import TraceFile

NOT_BEGUN = "the recording had not begun when the program ended"


@dataclass(frozen=True)
class Recording:
    """A file, or the problem that prevented it; times of the day at both ends; whole steps."""

    file: TraceFile | None
    problem: str | None
    start_unix_ns: int
    end_unix_ns: int
    steps: int
