"""Steps of a server that are longer because a request begins in them.

A request that is answered token by token has its encoder, or the pass over its prompt, in one of
its steps. That is work of the model on what is new, as far as anybody can see.
"""

from pinchpoint.analysis.host.frames import Owner, frame_of
from pinchpoint.analysis.mean.rare_steps import RareCause
from pinchpoint.analysis.work.workload import workload
from pinchpoint.trace import Trace

MOSTLY_RATIO = 0.5  # of the time of far steps, that passes inside of a model that was called
_CALLS = ("torch/nn/modules/module.py", "flax/linen/module.py", "equinox/_module.py")


def is_work_of_a_model(trace: Trace, cause: RareCause) -> bool:
    """Whether nothing is trained, and most of these steps passes in the program's own functions
    that a model calls."""
    samples = trace.run.samples if trace.run else None
    if samples is None or workload(trace).trains:
        return False
    seen = [one for step in cause.steps for one in step.seen]
    inside = sum(us for stack, us in seen if _is_in_a_model(samples.spelt(stack)))
    return inside >= MOSTLY_RATIO * max(sum(us for _, us in seen), 1)


def _is_in_a_model(frames: tuple[str, ...]) -> bool:
    """A frame of the program, and further out one that calls modules."""
    own = False
    for name in frames:
        frame = frame_of(name)
        if own and frame is not None and frame.file.endswith(_CALLS):
            return True
        own = own or (frame is not None and frame.owner is Owner.USER)
    return False
