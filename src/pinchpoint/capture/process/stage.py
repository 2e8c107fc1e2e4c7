"""The stages of a capture session.

    WAITING -> DRAINING -> RECORDING -> RECOVERING -> TIMING -> DONE

Where names are wanted, RECORDING comes several times. The *early* window begins with the first step
that is not cold, and counts only if the program ends before its steps are steady; its first step is
a *trial* of what recording costs here. Ranks of a job record the same *first* steps bare, whatever
stacks cost each of them, and have names of others beside. The window of *times* is bare. The one
for *names* follows at once, with stacks, shapes and modules, as far as the budget goes; a *rare*
one comes when a step far from typical is foreseen.

First use of the profiler and the export stall the program, and a stall lets a data loader fill its
queue; so as many steps pass (DRAINING, RECOVERING) as batches may have been made meanwhile before
steps count as ordinary again, as those of WAITING and TIMING do, with nothing but the hooks on.
"""

from enum import Enum, auto


class Stage(Enum):
    """Where a session is."""

    WAITING = auto()
    DRAINING = auto()
    RECORDING = auto()
    RECOVERING = auto()
    TIMING = auto()
    DONE = auto()
