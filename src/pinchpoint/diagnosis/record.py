"""What to record so that a cause can be judged."""

from enum import StrEnum

from pinchpoint.frozen import dataclass


class Need(StrEnum):
    """What recordings lack, in the few words by which causes are counted."""

    COUNTERS = "kernel counters (pinchpoint ncu)"
    NVIDIA = "a device of NVIDIA"
    SNAPSHOT = "a memory snapshot"
    PROFILE_MEMORY = "profile_memory=True"
    RECORD_SHAPES = "record_shapes=True"
    WITH_STACK = "with_stack=True"
    CPU_AND_DEVICE = "CPU and device activity"
    DEVICE = "device activity"
    SHAPES = "shapes of inputs"
    STACKS = "Python stacks"
    LONGER = "a longer recording"
    ANOTHER = "another recording"


@dataclass(frozen=True)
class Record:
    """What to record: one phrase for the reader, and what kind of thing it asks for."""

    phrase: str
    need: Need = Need.ANOTHER
    elsewhere: "Record | None" = None  # for a program that shows no PyTorch, where that differs


def _stacks(phrase: str, general: Need = Need.STACKS) -> Record:
    return Record(f"{phrase}: with_stack=True", Need.WITH_STACK, Record(phrase, general))


def _shapes(phrase: str, general: Need = Need.SHAPES) -> Record:
    return Record(f"{phrase}: record_shapes=True", Need.RECORD_SHAPES, Record(phrase, general))


def _snapshot(start: str, end: str = "") -> Record:
    return Record(
        f"a memory snapshot{start}, or a trace with profile_memory=True{end}",
        Need.SNAPSHOT,
        Record(f"a memory snapshot{start}{end}", Need.SNAPSHOT),
    )


CPU_AND_DEVICE = Record(
    "CPU and device activity together: ProfilerActivity.CPU and ProfilerActivity.CUDA",
    Need.CPU_AND_DEVICE,
    Record("CPU and device activity together", Need.CPU_AND_DEVICE),
)
DEVICE = Record(
    "device activity: ProfilerActivity.CUDA", Need.DEVICE, Record("device activity", Need.DEVICE)
)
ON_NVIDIA = Record("the same program on a device of NVIDIA", Need.NVIDIA)
COUNTERS = Record("hardware counters: pinchpoint ncu RECORDING python train.py", Need.COUNTERS)
TELEMETRY = Record("telemetry: pinchpoint run, or pinchpoint monitor --log FILE")
RUN_FOLDER = Record("a run folder: pinchpoint run")
# Of a program that does not compile: it watches the operations of some steps.
WATCHED_RUN = Record("a run folder: pinchpoint run")
ALL_RANKS = Record("all ranks of the same steps: pinchpoint ranks DIR")
MORE_STEPS = Record("the same over five steps or more")

STACKS = _stacks("Python stacks")
STACKS_OF_ALL_THREADS = _stacks("CPU activity with Python stacks of all threads")
STACKS_AFTER_WARM_UP = _stacks("CPU activity with Python stacks, after warm-up")
STACKS_WITH_DEVICE = _stacks("CPU and device activity with Python stacks", Need.CPU_AND_DEVICE)
STACKS_AND_MODULES = _stacks("Python stacks and modules")
STACKS_OVER_TOKENS = _stacks("Python stacks over a few dozen tokens")
STACKS_OVER_AN_EPOCH = _stacks("Python stacks, over an epoch's end")
STACKS_OVER_MANY_STEPS = _stacks("Python stacks, over some hundred steps")
STACKS_OVER_A_SAVE = _stacks("Python stacks, over steps that include a save")
STACKS_OF_FIRST_CALLS = _stacks("the first calls of the measurement too, with Python stacks")

SHAPES = _shapes("shapes")
SHAPES_OF_INPUTS = _shapes("shapes of inputs")
SHAPES_AND_TYPES = _shapes("shapes and types of inputs")
SHAPES_AND_STRIDES = _shapes("shapes and strides of inputs")
SHAPES_WITH_DEVICE = _shapes("CPU and device activity with shapes", Need.CPU_AND_DEVICE)
SHAPES_AND_STACKS = Record(
    "shapes and Python stacks: record_shapes=True, with_stack=True",
    Need.RECORD_SHAPES,
    Record("shapes and Python stacks", Need.SHAPES),
)

SNAPSHOT_OF_FIVE_STEPS = _snapshot(" of five steps or more")
SNAPSHOT_OF_TRAINING = _snapshot("", ", of two training steps or more")
SNAPSHOT_OF_TWO_STEPS = _snapshot("", ", of two training steps")
SNAPSHOT_OF_EVALUATION = _snapshot("", ", of two evaluation steps or more")
