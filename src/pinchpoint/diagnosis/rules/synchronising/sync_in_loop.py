"""The host reads a device value in the loop, so host and device take turns.

## What it looks for
Calls that copy a few bytes to the host and wait for them: `.item()`, `float(t)`, `bool(t)`,
printing a tensor, comparing one in an `if`. The gain is what replay says when the host no longer
waits there; a read that nobody would miss while the device is busy anyway has none. Where the
framework reads several values in one call and launches nothing after them (a tensor is formatted,
say), all that this call launches and does is for them, and goes too. Where a Python loop of 16
turns and more launches a few short kernels and reads a value in each, operators on whole tensors
win its launches as well, and the range reaches there. Results of unknown size, large copies and
synchronisations that the program asks for are causes of their own.

## Why it matters
While the host waits it launches nothing. When the value is there the queue of the device is empty,
and it idles until the host has prepared and launched the next operation.

## How to fix it
Keep the value on the device (`total += loss.detach()`) and read it every N steps, or copy it with
`non_blocking=True` into pinned memory and look at it a step later. Turn `if` on device values into
`torch.where`, and a loop over classes or pieces into operators on whole tensors. Leave formatting
to the logger, which drops it with the message: `log.debug("%s", x)`. A library that checks the
values it is given reads them; where it has an option for that (`validate_args=False` of
torch.distributions), leave the checks out.

## When to ignore it
Reads that come once in many steps, or where the host has nothing to do until the value is known.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.frames import PythonFrame
from pinchpoint.analysis.time.host_waits import WaitReason
from pinchpoint.diagnosis.evidence.device_work import reading_function, waiting
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace

RULE = Rule(needs=("api_calls", "device_ops"), record=CPU_AND_DEVICE, advice=NO_HINT)

_FIX = "Keep the value on the device and read it every 50 steps, or a step late"
_FIX_OF_A_LOOP = (
    "Replace the loop by operators on whole tensors, if no turn needs the one before it (one"
    " comparison with a range, torch.bincount, scatter_add_). Else: keep the values on the device"
)
MANY = 100  # whole numbers from here on: three digits say less
_FIX_OF_PRINTING = (
    "Do not print or format device tensors in the loop (a logger formats them itself, if at all:"
    ' log.debug("%s", x)); read values every 50 steps, or a step late'
)
# Functions of frameworks that read values of what they are given, by the file they are in.
_READS_OF_FILES = (
    ("torch/_tensor_str.py", _FIX_OF_PRINTING),
    ("torch/_tensor.py", _FIX_OF_PRINTING),
    (
        "torch/distributions/",
        "Switch the checks of distributions off: validate_args=False, or"
        " torch.distributions.Distribution.set_default_validate_args(False) before the loop",
    ),
)
_FIX_OF_A_CALL = (
    "{function} reads values of what it is given: look for its option to leave checks out, call it"
    " less often, or do its work with operators"
)


def check(trace: Trace) -> Iterator[Found]:
    """Reads of device values inside the steps."""
    reads = waiting(trace, "reads of device values", WaitReason.VALUE)
    if reads is None:
        return
    called = reading_function(trace)
    from pinchpoint.diagnosis.rules.synchronising._small_loop import small_loop

    loop = None if called else small_loop(trace, reads)
    inside = f", inside {called.function} of {_module(called)}" if called else ""
    times = f"{reads.count:,.0f}" if reads.count >= MANY else f"{reads.count:.3g}"
    yield Found(
        summary=(
            f"The host reads a device value (.item()){reads.where}{inside}, {times} × a step"
            + (loop.words if loop else "")
        ),
        evidence=(*reads.evidence, *(loop.evidence if loop else ())),
        cost_ns_per_step=reads.waited_ns,
        changes=reads.dropped,
        once_a_step=reads.once_a_step,
        at_best=(*reads.dropped, *loop.as_one_call) if loop else (),
        location=reads.place,
        fix=_FIX_OF_A_LOOP if loop else _fix(called),
        hint="# a sum of losses, for example:\n"
        "total += loss.detach()  # total.item() when it is logged",
    )


def _module(frame: PythonFrame) -> str:
    """``torch/distributions/normal.py`` as ``torch.distributions.normal``."""
    return frame.file.removesuffix(".py").replace("/", ".")


def _fix(called: PythonFrame | None) -> str:
    if called is None:
        return _FIX
    named = (fix for part, fix in _READS_OF_FILES if part in called.file)
    return next(named, _FIX_OF_A_CALL.format(function=called.function))
