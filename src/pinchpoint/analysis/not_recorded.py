"""The answer of a question that a recording cannot answer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NotRecorded:
    """Why there is no answer, and what to record so that there is one."""

    why: str
    record: str
