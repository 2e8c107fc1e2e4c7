"""What stands in the way of a recording, said while the program still runs.

A program may run for days. Whoever hears only then that nothing was recorded has lost them.
"""

import threading
from collections.abc import Callable
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.run_folder.documents import ProcessDocument, read
from pinchpoint.run_folder.layout import HOOKS_MARK, PROCESSES

HOOKS_BY_S = 8.0  # hooks are loaded in the first second of Python
NOTES_BY_S = 40.0  # by then torch is imported from a cold disk, too, and processes have notes

NO_HOOKS = (
    "the hooks were never loaded, so that nothing is recorded: the program is not Python, or ended "
    "while Python started, or Python ran with -I, -E or -S and ignored PYTHONPATH; name the "
    "script, or its interpreter: pinchpoint run --python ENV/bin/python train.py"
)
Say = Callable[[str], None]


class EarlyWord:
    """Looks twice, early, and says what it sees; ``said`` is not to be said again."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._folder, self._say = folder, say
        self._end = threading.Event()
        self.said: list[str] = []
        self._thread = threading.Thread(target=self._run, name="pinchpoint-early", daemon=True)

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def end(self) -> None:
        """The program has ended: what is missing is said elsewhere."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _run(self) -> None:
        if self._end.wait(HOOKS_BY_S):
            return
        self._look()
        if not self.said and not self._end.wait(NOTES_BY_S - HOOKS_BY_S):
            self._look()

    def _look(self) -> None:
        processes = self._folder / PROCESSES
        if not (processes / HOOKS_MARK).exists():
            self._tell(NO_HOOKS)
        for path in sorted(processes.glob("rank*.json")):
            try:
                for problem in read(path, ProcessDocument).document.problems:
                    self._tell(problem)
            except UnreadableFile:
                continue

    def _tell(self, text: str) -> None:
        if text not in self.said:
            self.said.append(text)
            self._say(text)
