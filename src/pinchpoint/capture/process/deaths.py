"""Threads of the program that an exception ended: the program may go on, or wait for them for ever.

Heard by ``threading.excepthook``, which then does what it did before: Python prints the error.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pinchpoint.capture.samples.stacks import import_roots, relative

OURS = "pinchpoint-"  # beginning of the names of our own threads
MOST_DEATHS = 8  # that are told apart; the first one is the cause of others, as a rule
MOST_CHARACTERS = 300  # of an exception's last line


class Deaths:
    """The first threads that ended so, and how many did. ``start``, ``stop``."""

    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard
        self._before: Callable[[Any], object] = threading.excepthook
        self._began_ns = time.perf_counter_ns()
        self.first: list[dict[str, Any]] = []
        self.count = 0

    def start(self) -> None:
        """Listen."""
        self._before = threading.excepthook
        threading.excepthook = self._died

    def stop(self) -> None:
        """Leave Python's function as it was, unless the program has put one of its own there."""
        if threading.excepthook == self._died:
            threading.excepthook = self._before

    def _died(self, about: Any) -> None:
        with contextlib.suppress(Exception):  # the user's program comes first
            self._note(about)
        self._before(about)

    def _note(self, about: Any) -> None:
        name = getattr(about.thread, "name", None) or ""
        if about.exc_type is SystemExit or name.startswith(OURS):
            return
        self.count += 1
        if len(self.first) < MOST_DEATHS:
            self.first.append(
                {
                    "thread": name,
                    "said": _last_line(about.exc_type, about.exc_value),
                    "place": _place(about.exc_traceback),
                    "after_ns": time.perf_counter_ns() - self._began_ns,
                }
            )
            self._heard()


def _last_line(kind: type[BaseException], value: BaseException | None) -> str:
    words = str(value or "").strip().splitlines()
    said = f"{kind.__qualname__}: {words[0]}" if words else kind.__qualname__
    return said[:MOST_CHARACTERS]


def _place(traceback: Any) -> list[object] | None:
    """The innermost frame that is not of an installed package or of Python itself."""
    roots, own, last = import_roots(), None, None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        last = [relative(code.co_filename, roots), traceback.tb_lineno or 0, code.co_name]
        if not _is_installed(code.co_filename):
            own = last
        traceback = traceback.tb_next
    return own or last


def _is_installed(file: str) -> bool:
    parts = Path(file).parts
    homes = {sys.prefix, sys.base_prefix}
    return (
        "site-packages" in parts or file.startswith("<") or any(file.startswith(h) for h in homes)
    )
