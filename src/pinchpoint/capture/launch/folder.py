"""Makes a run folder, and the parts of it that are known before the program starts."""

import json
import os
import subprocess
from contextlib import suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path

from pinchpoint.errors import UsageError
from pinchpoint.run_folder.layout import (
    DIFF_FILE,
    LOADER,
    MEMORY,
    NAMES,
    NCU,
    NSYS,
    PROCESSES,
    RUN_FILE,
    SAMPLES,
    STEPS_SUFFIX,
    TRACES,
    VALUES,
    make_home,
    write_json,
)

DEFAULT_HOME = "pinchpoint-runs"
_DIFF_LIMIT_BYTES = 16 << 20
_GIT_SECONDS = 10
# Nothing that the repository's configuration could name is run.
_GIT_DIFF = (
    "git",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "diff",
    "HEAD",
    "--no-ext-diff",
    "--no-textconv",
)


def new_run_folder(wanted: Path | None, label: str, *, shared: bool = False) -> Path:
    """An empty run folder: the one asked for, or ``pinchpoint-runs/<time>-<label>``.

    Raises UsageError if it cannot be made, or already holds something. A ``shared`` folder may hold
    what other ranks of the same job have just put there.
    """
    path = wanted or Path(DEFAULT_HOME) / f"{datetime.now():%Y%m%d-%H%M%S}-{label}"
    try:
        if wanted is None:
            path = _made_unused(path)
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()) and not shared:
            what = "an earlier run" if (path / RUN_FILE).exists() else "something else"
            raise UsageError(
                f"{path}: the folder already holds {what}",
                hint="name another folder, or remove this one",
            )
        for part in (TRACES, NAMES, SAMPLES, VALUES, PROCESSES, LOADER, MEMORY, NSYS, NCU):
            (path / part).mkdir(exist_ok=shared)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror or error}",
            hint="name a folder that you may write to: pinchpoint run -o FOLDER …",
        ) from None
    return path.resolve()


def _made_unused(path: Path) -> Path:
    """A new folder of this name, or with a number: several runs may start at the same moment."""
    make_home(path.parent)
    for candidate in chain([path], (path.with_name(f"{path.name}-{n}") for n in count(2))):
        with suppress(FileExistsError):
            candidate.mkdir()
            break
    return candidate


def write_diff(folder: Path) -> None:
    """Keep what the working tree has changed since its commit, so that the run can be repeated."""
    try:
        done = subprocess.run(
            _GIT_DIFF,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return
    if done.returncode == 0 and 0 < len(done.stdout) <= _DIFF_LIMIT_BYTES:
        (folder / DIFF_FILE).write_bytes(done.stdout)


def remove_leftovers(folder: Path) -> None:
    """Hidden pieces of files that a killed process did not finish."""
    for part in (TRACES, NAMES, PROCESSES, LOADER, MEMORY):
        for path in (folder / part).glob(".*"):
            path.unlink(missing_ok=True)


def count_to_the_end(folder: Path) -> None:
    """Give processes that were killed the number of steps that they counted last."""
    for counted in sorted(folder.glob(f"*{STEPS_SUFFIX}")):
        path = counted.with_suffix(".json")
        try:
            document, steps = json.loads(path.read_bytes()), int(counted.read_text())
            if steps > document["steps"]["count"]:
                document["steps"]["count"] = steps
                write_json(path, document)
            counted.unlink()
        except (OSError, ValueError, KeyError, TypeError):
            continue
