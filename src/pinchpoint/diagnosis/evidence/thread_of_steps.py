"""Which of the threads that were looked at over the whole run takes the steps.

On Linux a recording names threads by the numbers that the system gave them, and the main thread has
that of its process.
"""

from pinchpoint.analysis.steps.steps import steps
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.run_samples import SampledThread


@once_per_trace
def thread_of_steps(trace: Trace) -> SampledThread | None:
    """None where the run was not looked at, or where another thread takes them than is known."""
    samples = trace.run.samples if trace.run else None
    if samples is None:
        return None
    number = _number(trace)
    same = (t for t in samples.threads if t.native is not None and str(t.native) == number)
    if (found := next(same, None)) is not None:
        return found
    return next((t for t in samples.threads if t.main), None) if _may_be_main(trace) else None


@once_per_trace
def steps_on_main_thread(trace: Trace) -> bool:
    """Whether looks at the main thread tell of the steps: not where a thread of a pool takes them,
    for which the main one waits."""
    samples = trace.run.samples if trace.run else None
    if samples is None:
        return _may_be_main(trace)
    found = thread_of_steps(trace)
    return found.main if found is not None else _may_be_main(trace)


def _may_be_main(trace: Trace) -> bool:
    """By their numbers alone, which say nothing where only one thread was recorded: it may have
    been given any."""
    thread = steps(trace).thread
    if not 0 <= thread < len(trace.threads):
        return True
    of = trace.threads[thread]
    others = {t.thread for t in trace.threads if t.process == of.process}
    numbers = of.thread.isdecimal() and of.process.isdecimal() and len(others) > 1
    return not numbers or of.thread == of.process


def _number(trace: Trace) -> str | None:
    thread = steps(trace).thread
    return trace.threads[thread].thread if 0 <= thread < len(trace.threads) else None
