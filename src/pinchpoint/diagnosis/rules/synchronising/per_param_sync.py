"""The host reads a device value for each parameter: clipping, norms, checks.

## What it looks for
Reads of device values (`.item()`, an `if` on a tensor) whose number in a step is in proportion to
the number of parameter tensors, at one place of the program. Fewer reads are somebody's few values
(`sync-in-loop`), and so are those that a function of the framework makes which is given no
parameters (checks of a distribution's arguments). Gradients that are accumulated tell the number of
parameters, so nothing is found in programs that do not train. Where a few short kernels go with
each read, the range reaches to where they are launched once for all parameters.

## Why it matters
Each read drains the device's queue. Hundreds in a row make the host and the device take turns for
the whole optimizer or clipping phase.

## How to fix it
Grouped operations without a branch: `torch.nn.utils.clip_grad_norm_(foreach=True)`,
`torch._foreach_norm`, `torch.where`.

## When to ignore it
Where it happens at rare steps.
"""

from collections.abc import Iterator

from pinchpoint.analysis.time.host_waits import WaitReason
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.evidence.device_work import reading_function, waiting
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    parent="sync-in-loop",
    advice=NO_HINT,
)

FEWEST_READS = 16  # fewer are somebody's few values, not one for each parameter
# Reads for each parameter tensor; some have no gradient, or share a check.
LEAST_OF_PARAMETERS = 0.25
# Parts of the framework that programs hand all their parameters to.
_GIVEN_PARAMETERS = ("torch/nn/utils/", "torch/optim/", "torch/amp/")


def check(trace: Trace) -> Iterator[Found]:
    """Reads in proportion to the parameters."""
    reads = waiting(trace, "reads of device values", WaitReason.VALUE)
    parameters = workload(trace).parameters
    if reads is None or not parameters or reads.count < FEWEST_READS:
        return
    if reads.count < LEAST_OF_PARAMETERS * parameters:
        return
    reader = reading_function(trace)
    if reader is not None and not reader.file.startswith(_GIVEN_PARAMETERS):
        return  # it reads what it is given, and that is no parameter
    from pinchpoint.diagnosis.rules.synchronising._small_loop import small_loop

    loop = small_loop(trace, reads)
    yield Found(
        summary=(
            f"The host reads {reads.count:.0f} device values a step{reads.where},"
            f" about {reads.count / parameters:.1f} for each parameter tensor"
        ),
        evidence=(Evidence("parameter tensors", round(parameters), "per step"), *reads.evidence),
        cost_ns_per_step=reads.waited_ns,
        changes=reads.dropped,
        at_best=(*reads.dropped, *loop.as_one_call) if loop else (),
        location=reads.place,
        fix="Use grouped operations without a branch on a device value",
        hint="torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)",
    )
