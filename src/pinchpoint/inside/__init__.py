"""What runs inside the user's program: one start, one import hook, one set of hooks.

``site/`` is put in front of ``PYTHONPATH`` of the command. Python then loads its
``sitecustomize``, which loads this package by its place, starts what the environment asks for (the
step recorder and the knobs of ``bench``, the session of ``run``) and hands on to the user's own.

``after_import`` acts on modules as the program imports them; ``hooks`` tells of steps and batches
to whoever listens. All of it uses the standard library of Python 3.8 and nothing else of
Pinchpoint: the program may run under another interpreter, in which Pinchpoint is not installed.
"""

from __future__ import annotations

import os
import sys
from typing import Callable, Mapping

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
FOLDER_VARIABLE = "PINCHPOINT_STEP_FOLDER"
FUNCTION_VARIABLE = "PINCHPOINT_STEP_FUNCTION"
KNOBS_VARIABLE = "PINCHPOINT_KNOBS"
END_VARIABLE = "PINCHPOINT_END_AFTER"
LINES_VARIABLE = "PINCHPOINT_LINES"  # {file: [[first line, last line], …]} that are looked for


def path_with_hooks(env: Mapping[str, str]) -> str:
    """``PYTHONPATH`` of ``env`` with the hooks in front."""
    return os.pathsep.join([SITE, *([env["PYTHONPATH"]] if env.get("PYTHONPATH") else [])])


def recording_environment(
    env: Mapping[str, str], folder: str, function: str | None = None, end_after: str | None = None
) -> dict[str, str]:
    """``env`` so that Python programs started with it write their steps to ``folder``.

    ``function`` is one whose return ends a step, as ``after_function`` takes it. ``end_after`` ends
    the program after so many steps (``40``) or seconds of them (``30s``).
    """
    named = {} if function is None else {FUNCTION_VARIABLE: function}
    if end_after is not None:
        named[END_VARIABLE] = end_after
    return {**env, "PYTHONPATH": path_with_hooks(env), FOLDER_VARIABLE: folder, **named}


marked: list[Callable[[], None]] = []  # who hears that the program says where a step ends


def step(work: float | None = None) -> None:
    """Say that a step of this program ends here, ``work`` units (samples, tokens, …) done.

    For loops that no hook divides as you would: under ``pinchpoint run`` and in benchmarks it marks
    the steps. Elsewhere it does nothing, at the cost of one dictionary look-up.
    """
    recorder = sys.modules.get("pinchpoint.inside.step_recorder")
    if recorder is not None:
        recorder.mark(work)
    for heard in marked:
        heard()


step_done = step  # the name that benchmarks have used from the beginning
