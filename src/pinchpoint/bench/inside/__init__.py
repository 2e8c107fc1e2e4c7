"""What runs inside the measured program: ends of steps, waits for data, peaks. Nothing else.

``site/`` is put in front of ``PYTHONPATH`` of the command. Python then loads its
``sitecustomize``, which starts ``pinchpoint_step_recorder`` (and ``pinchpoint_knobs``, for an
experiment) and hands on to the user's own. These files use the standard library only and import
nothing of this package: the program may run under another interpreter, in which Pinchpoint is not
installed.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

SITE = Path(__file__).parent / "site"
FOLDER_VARIABLE = "PINCHPOINT_STEP_FOLDER"
KNOBS_VARIABLE = "PINCHPOINT_KNOBS"


def recording_environment(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """``env`` so that Python programs started with it write their steps to ``folder``."""
    path = [str(SITE), *([env["PYTHONPATH"]] if env.get("PYTHONPATH") else [])]
    return dict(env) | {"PYTHONPATH": os.pathsep.join(path), FOLDER_VARIABLE: str(folder)}


def step_done(work: float | None = None) -> None:
    """Say that a step of this program ends here, ``work`` units (samples, tokens, …) done.

    For loops without an optimizer. Outside of a benchmark it does nothing, at the cost of one
    dictionary look-up.
    """
    recorder = sys.modules.get("pinchpoint_step_recorder")
    if recorder is not None:
        recorder.mark(work)
