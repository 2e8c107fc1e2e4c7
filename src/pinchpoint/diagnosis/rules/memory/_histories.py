"""What the rules about memory share: which devices can be judged at all."""

from pinchpoint.analysis.memory.composition import largest_category
from pinchpoint.analysis.memory.history import History, recorded_histories
from pinchpoint.analysis.memory.owners.owners import MemoryCategory
from pinchpoint.diagnosis.rule import NotChecked
from pinchpoint.trace import Trace


def judged(trace: Trace) -> tuple[History, ...]:
    """Devices whose history is known; NotChecked without any."""
    found = recorded_histories(trace)
    if not found:
        raise NotChecked(
            "its memory events do not say which block they are about, or are of the host alone"
        )
    return found


def owners_known(history: History, event: int) -> None:
    """NotChecked where what nobody is known to own is the largest part of the live memory.

    Blocks from before the recording have no stacks, and neither parameters nor a model that was
    loaded then can be told from anything else.
    """
    if largest_category(history, event) == MemoryCategory.UNKNOWN:
        raise NotChecked(
            "the largest part of the live memory was allocated before the recording, or has no"
            " stack that tells what it is"
        )
