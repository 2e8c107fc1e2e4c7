"""From the words after ``pinchpoint run`` to the command that is started."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from pinchpoint.errors import UsageError


def command_line(words: Sequence[str]) -> list[str]:
    """``train.py a``, ``-m package a`` or ``torchrun … train.py`` as a command to start.

    A script runs with the interpreter that runs Pinchpoint. Raises UsageError if there is no such
    script or program.
    """
    if not words:
        raise UsageError("which program?", hint="pinchpoint run train.py [its arguments]")
    first = words[0]
    if first == "-m":
        if len(words) < 2:
            raise UsageError("-m needs the name of a module", hint="pinchpoint run -m package")
        return [sys.executable, *words]
    if first.endswith((".py", ".pyw", ".pyz")) or Path(first, "__main__.py").is_file():
        if not Path(first).exists():
            raise UsageError(f"{first}: no such file", hint="check the path of the script")
        return [sys.executable, *words]
    if shutil.which(first):
        return list(words)
    if Path(first).is_file() and not os.access(first, os.X_OK):
        return [sys.executable, *words]
    raise UsageError(
        f"{first}: neither a Python script nor a program on the path",
        hint="pinchpoint run train.py, pinchpoint run -m package, pinchpoint run torchrun …",
    )


def label(words: Sequence[str]) -> str:
    """A short name for the run folder: the script's name without its ending."""
    scripts = [w for w in words if w.endswith(".py")]
    name = Path(scripts[0]).stem if scripts else Path(words[-1 if words[0] == "-m" else 0]).name
    if words[0] == "-m" and len(words) > 1:
        name = words[1]
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:40] or "run"
