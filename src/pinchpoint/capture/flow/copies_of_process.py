"""Watches that end in the copy of a process that forked, such as a loader's worker."""

import os
from typing import Protocol


class Heard(Protocol):
    """What hears of operations until it knows a reason why not."""

    why_not: str


UNDER_WAY: set[Heard] = set()


def _forked() -> None:
    for watch in UNDER_WAY:
        watch.why_not = "this is a copy of the process"


if hasattr(os, "register_at_fork"):  # not where processes cannot fork
    os.register_at_fork(after_in_child=_forked)
