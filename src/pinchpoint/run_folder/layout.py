"""The layout of a run folder: names and versions that writers and readers share.

Described for people in ``docs/reference/run-folder.md``. Standard library only, as it is also
used inside the user's program.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pinchpoint.replacing import replacing

SCHEMA = "pinchpoint.run/1"
PROCESS_SCHEMA = "pinchpoint.process/1"
METRICS_SCHEMA = "pinchpoint.run-metrics/1"
SAMPLES_SCHEMA = "pinchpoint.run-samples/1"
VALUES_SCHEMA = "pinchpoint.run-values/1"

RUN_FILE = "run.json"  # command, times, exit code, what was asked, what went wrong
METRICS_FILE = "metrics.json"  # step times and data waits without the profiler, memory
ENVIRONMENT_FILE = "env.json"  # the environment record of monitor/environment
TELEMETRY_FILE = "telemetry.csv"  # device and host samples of monitor/telemetry_log
DIFF_FILE = "git.diff"  # uncommitted changes of the code that ran
TRACES = "traces"  # one recording a rank
NAMES = "names"  # recordings with stacks, shapes and modules beside those, for names and places
PROCESSES = "processes"  # what each process of the program saw: one JSON file each
HOOKS_MARK = "hooks-loaded"  # an empty file there: Python has loaded the hooks
FRAMEWORK_MARK = "framework-imported"  # the same: torch or jax is there
COPY_MARK = "copy"  # the same, numbered: a copy of a process, made by a fork, is recorded
NOT_RECORDED_MARK = "copy-not-recorded"  # the same: one trains that cannot be
LOADER = "loader"  # what each worker process of a data loader saw
SAMPLES = "samples"  # stacks of all threads over the whole run, and steps far from typical
VALUES = "values"  # what one step's batches and attention masks held: padding, flags
MEMORY = "memory"  # allocator snapshots
NSYS = "nsys"
NCU = "ncu"
STEPS_SUFFIX = ".steps"  # beside a process's file: its steps by now, in case it is killed
REQUEST_FILE = "capture.request"  # its appearance asks the program for one more recording

NOTEBOOK = ("a", "notebook", "cell")  # the command of a run that a cell was

# Of one core, looks at overdue steps included; windows have 1.2 % of ten minutes. Beyond it, once,
# 0.05 % of ten minutes: a program that ends soon is known by more looks, and until that is spent
# they may take more of a core.
MOST_LOOKS_RATIO = 0.006
LOOKS_ONCE_NS = 300_000_000
SAVING_RATIO = 0.002  # of one core, that writing what was seen so far may take


def process_stem(recording: str) -> str:
    """What the files of a process begin with, by the name of a recording of it: rank, host and
    number of the process. Further recordings of a process have a number behind that."""
    return ".".join(recording.partition(".trace.")[0].split(".")[:3])


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write the whole document or nothing: a reader never sees half of it. Raises OSError."""
    with replacing(path) as beside:
        beside.write_text(json.dumps(document, indent=1, allow_nan=False), encoding="utf-8")


def make_home(home: Path) -> None:
    """The folder that results go into unasked; a new one is none of the files that git asks about.

    Raises OSError.
    """
    if not home.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        (home / ".gitignore").write_text("# made by pinchpoint\n*\n")
