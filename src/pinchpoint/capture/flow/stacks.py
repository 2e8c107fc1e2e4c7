"""Numbers for the frames of the user's and of libraries' code around operations."""

from types import CodeType, FrameType
from typing import Any

from pinchpoint.capture.flow.surroundings import folders

Stack = tuple[tuple[CodeType, int], ...]  # code and instruction, outermost first
MOST_FRAMES = 48  # around an operation
_CHECKPOINT = "torch/utils/checkpoint.py"


class Stacks:
    """All stacks that were met; the first is empty."""

    def __init__(self, torch: Any) -> None:
        self.all: list[Stack] = [()]
        self._numbers: dict[Any, int] = {(): 0}
        self._shown: dict[CodeType, bool] = {}
        self._framework = folders(torch)

    def number(self, frame: FrameType | None) -> tuple[int, bool]:
        """The number of the frames; and whether a checkpoint runs its part of the program."""
        checkpoint = False
        found: list[tuple[CodeType, int]] = []
        known = self._shown
        while frame is not None and len(found) < MOST_FRAMES:
            code = frame.f_code
            shown = known.get(code)
            if shown is None:
                shown = known[code] = self._is_shown(code)
            if shown:
                found.append((code, frame.f_lasti))
            elif code.co_filename.endswith(_CHECKPOINT):
                checkpoint = True
            frame = frame.f_back
        key = tuple(found)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.all)
            self.all.append(key[::-1])
        return number, checkpoint

    def _is_shown(self, code: CodeType) -> bool:
        file = code.co_filename
        return "-packages/" in file.removeprefix(self._framework[0]) or not file.startswith(
            ("<frozen", "<string", *self._framework)
        )
