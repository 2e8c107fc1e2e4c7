"""What to record: handed to the program through its environment, asked for later by a file."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal

from pinchpoint.frozen import dataclass
from pinchpoint.run_folder.layout import REQUEST_FILE

FOLDER_VARIABLE = "PINCHPOINT_RUN"
SETTINGS_VARIABLE = "PINCHPOINT_CAPTURE"
HOOKS_VARIABLE = "PINCHPOINT_HOOKS"  # the module that ``inside`` starts in each process
HOOKS = "pinchpoint.capture.process.program"

STEPS = 6
# Of work without steps, before it is recorded.
EARLY_AFTER_S = 1.0  # a program that ends within seconds has no better time
FIRST_AFTER_S = 5.0  # so that start-up of small programs is over
# Of window: bare, with names, names from the start, names of a step that is rare; one early bare
# step to see what recording costs; names without stacks; bare first steps of a job's ranks. The
# last three are kept as early, names and early.
# Late ones, with names, hold steps that have become longer than those recorded so far.
Kind = Literal["times", "names", "early", "rare", "late", "trial", "shapes", "first"]
BARE = ("times", "trial", "first")
UNSTACKED = (*BARE, "shapes")
BESIDE = ("names", "rare", "late", "shapes")  # kinds of window that lie beside the one of times
Tool = Literal["torch", "nsys", "none"]


@dataclass(frozen=True)
class Settings:
    """Choices of one capture. Everything that adds cost is off unless asked for."""

    folder: str
    steps: int = STEPS  # complete steps in the recording
    whole_round: bool = False  # more if a loader has more workers than that
    stacks: bool = False
    shapes: bool = False
    memory: bool = False
    flops: bool = False
    snapshot: bool = False  # allocator history
    bounded: bool = False  # fewer steps, and no stacks, where they would cost too much
    names: bool = False  # a second window with stacks, shapes and FLOPs
    samples: bool = False  # stacks of all threads over the whole run, and steps far from typical
    nvtx: bool = False
    ranks: str = "auto"  # auto, all, or numbers: 0,3,7
    after_steps: int | None = None  # open after so many steps instead of at steady state
    after_s: float | None = None  # for programs without steps: open after so many seconds
    skip_first: int = 0  # cycles as of torch.profiler.schedule; they are off where repeat is 0
    wait: int = 0
    warmup: int = 1
    repeat: int = 0
    seconds: float = 2.0  # for programs without steps: length of the recording
    max_bytes: int = 512 << 20  # growth of the process at which a recording ends early
    tool: Tool = "torch"
    only_when_slower: bool = False  # the flight recorder: no recording is the usual outcome
    cell: bool = False  # of a notebook, whose earlier cells may have made an optimizer
    launcher_pid: int | None = None

    def environment(self) -> dict[str, str]:
        """The variables that carry these settings."""
        rest = asdict(self)
        folder = rest.pop("folder")
        return {
            FOLDER_VARIABLE: folder,
            SETTINGS_VARIABLE: json.dumps(rest),
            HOOKS_VARIABLE: HOOKS,
        }


def with_names(settings: Settings) -> Settings:
    """The same for a window whose names and places count, and whose times do not."""
    return replace(settings, stacks=True, shapes=True, flops=True)


def from_environment(environ: Mapping[str, str]) -> Settings | None:
    """The settings of this process; None if no capture was asked for."""
    folder = environ.get(FOLDER_VARIABLE)
    if not folder:
        return None
    try:
        given: dict[str, Any] = json.loads(environ.get(SETTINGS_VARIABLE) or "{}")
    except ValueError:
        given = {}
    known = {field.name for field in fields(Settings)}
    return Settings(folder, **{k: v for k, v in given.items() if k in known and k != "folder"})


def chosen(ranks: str, rank: int, world_size: int) -> bool:
    """Whether this rank records.

    ``auto`` is every rank of up to eight, else the first, the middle and the last: all ranks are
    timed in any case, and a recording of each costs disk and stalls the job.
    """
    if ranks == "all":
        return True
    if ranks == "auto":
        return world_size <= 8 or rank in (0, world_size // 2, world_size - 1)
    return str(rank) in {part.strip() for part in ranks.split(",")}


# ------------------------------------------------------------------------------------------------
# Requests for one more recording, as ``pinchpoint attach`` makes them: by a file.


REQUEST_EVERY_NS = 1_000_000_000  # a look at a file in a step must not show in a mean


class Requests:
    """Whether somebody asked since the last answer."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / REQUEST_FILE
        self._looked_ns, self._answered = 0, 0

    def due(self) -> bool:
        """Whether it is time to look again."""
        now_ns = time.monotonic_ns()
        if now_ns - self._looked_ns < REQUEST_EVERY_NS:
            return False
        self._looked_ns = now_ns
        return True

    def new(self) -> bool:
        """Whether there is a request that was not answered; from now on it is."""
        try:
            stamp = self._file.stat().st_mtime_ns
        except OSError:
            return False
        new = stamp != self._answered
        self._answered = stamp
        return new
