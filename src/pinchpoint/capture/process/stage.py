"""The stages of a capture session, in order."""

from enum import Enum, auto


class Stage(Enum):
    """Where a session is."""

    WAITING = auto()
    DRAINING = auto()
    RECORDING = auto()
    RECOVERING = auto()
    TIMING = auto()
    DONE = auto()
