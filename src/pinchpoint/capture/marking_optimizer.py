"""Of several optimizers of a program, the one whose steps are the program's steps."""

from typing import Any

LOST_AFTER = 8  # steps of others without one of it: it is no longer in use


class MarkingOptimizer:
    """The first one seen, until others have stepped for long without it."""

    def __init__(self) -> None:
        self._id: int | None = None
        self._others = 0

    def stepped(self, optimizer: Any) -> bool:
        """Whether this step ends a step of the program."""
        if self._id is None or self._others >= LOST_AFTER:
            self._id = id(optimizer)
        mine = id(optimizer) == self._id
        self._others = 0 if mine else self._others + 1
        return mine
