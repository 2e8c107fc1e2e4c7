"""What workers of a loader read from files, beside what their batches hold."""

from pinchpoint.analysis.run import run_facts
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace

# A judgement: containers, paddings and types that are narrowed make twice as many.
LEAST_TIMES = 4.0
FEWEST_BYTES = 64 << 20  # read by all workers: what a program imports and looks up is less


@dataclass(frozen=True)
class ReadAndUsed:
    """Of all workers together."""

    read_bytes: int  # asked of files; what is mapped is not among them
    used_bytes: int  # in their batches
    batches: int


@once_per_trace
def read_and_used(trace: Trace) -> ReadAndUsed | None:
    """None where one of them is not known of every worker."""
    workers = run_facts(trace).loader_workers
    read = [one.read_bytes for one in workers if one.read_bytes is not None]
    used = [one.batch_bytes for one in workers if one.batch_bytes is not None]
    batches = sum(one.batches for one in workers)
    if min(len(read), len(used)) < len(workers) or not sum(used) or not batches:
        return None
    return ReadAndUsed(sum(read), sum(used), batches)


def reads_too_much(trace: Trace) -> bool:
    """Whether workers are known to read many times what they hand over."""
    found = read_and_used(trace)
    return found is not None and found.read_bytes >= max(
        LEAST_TIMES * found.used_bytes, FEWEST_BYTES
    )
