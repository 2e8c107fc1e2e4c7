"""Interpreters on this machine that have a framework which the program's own lacks."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

MOST_OFFERED = 3
ENVIRONMENTS = (".venv", "venv", "env", ".env")
HOMES = ("miniconda3/envs", "anaconda3/envs", "miniforge3/envs", ".virtualenvs", ".pyenv/versions")


def interpreters_with(framework: str) -> list[str]:
    """Paths of interpreters whose environment has the package, nearest to the program first.

    Nothing is started: only folders are looked at.
    """
    found: list[str] = []
    for prefix in _prefixes():
        python = prefix / "bin" / "python"
        own = prefix == Path(sys.prefix)
        if own or str(python) in found or not os.access(python, os.X_OK):
            continue
        packages = [
            *prefix.glob("lib/python3*/site-packages"),
            *prefix.glob("lib/python3*/dist-packages"),
        ]
        if any((place / framework / "__init__.py").is_file() for place in packages):
            found.append(str(python))
        if len(found) == MOST_OFFERED:
            break
    return found


def _prefixes() -> Iterator[Path]:
    """Environments, as a person keeps them: beside the program, active, at home, on the path."""
    script = Path(sys.argv[0] or ".").resolve().parent
    for folder in dict.fromkeys((Path.cwd(), script, *Path.cwd().parents[:2], *script.parents[:2])):
        yield from (folder / name for name in ENVIRONMENTS)
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if value := os.environ.get(variable):
            yield Path(value)
    home = Path.home()
    for place in HOMES:
        yield from sorted((home / place).glob("*"))
    for commands in os.environ.get("PATH", "").split(os.pathsep):
        if (Path(commands) / "python3").exists():
            yield Path(commands).parent
