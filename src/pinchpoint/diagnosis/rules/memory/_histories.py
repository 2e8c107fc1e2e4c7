"""What the rules about memory share: which devices can be judged at all."""

from pinchpoint.analysis.memory.history import History, recorded_histories
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
