"""The host reads a device value in the loop, so host and device take turns.

## What it looks for
Calls that copy a few bytes to the host and wait for them: `.item()`, `float(t)`, `bool(t)`,
printing a tensor, comparing one in an `if`. The gain is what replay says when the host no longer
waits there; a read that nobody would miss while the device is busy anyway has none. Where the
framework reads several values in one call and launches nothing after them (a tensor is formatted,
say), all that this call launches and does is for them, and goes too. Results of
unknown size, large copies and synchronisations that the program asks for are causes of their own.

## Why it matters
While the host waits it launches nothing. When the value is there the queue of the device is empty,
and it idles until the host has prepared and launched the next operation.

## How to fix it
Keep the value on the device (`total += loss.detach()`) and read it every N steps, or copy it with
`non_blocking=True` into pinned memory and look at it a step later. Turn `if` on device values into
`torch.where`. Leave formatting to the logger, which drops it with the message:
`log.debug("%s", x)`.

## When to ignore it
Reads that come once in many steps, or where the host has nothing to do until the value is known.
"""

from collections.abc import Iterator

from pinchpoint.analysis.time.host_waits import WaitReason
from pinchpoint.diagnosis.evidence.device_work import waiting
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace

RULE = Rule(needs=("api_calls", "device_ops"), record=CPU_AND_DEVICE, advice=NO_HINT)

_FIX = "Keep the value on the device and read it every 50 steps, or a step late"
_FIX_OF_A_CALL = (
    "Do not print or format device tensors in the loop (a logger formats them itself, if at all:"
    ' log.debug("%s", x)); read values every 50 steps, or a step late'
)


def check(trace: Trace) -> Iterator[Found]:
    """Reads of device values inside the steps."""
    reads = waiting(trace, "reads of device values", WaitReason.VALUE)
    if reads is None:
        return
    yield Found(
        summary=f"The host reads a device value (.item()){reads.where}, {reads.count:.3g} × a step",
        evidence=reads.evidence,
        cost_ns_per_step=reads.waited_ns,
        changes=reads.dropped,
        location=reads.place,
        fix=_FIX_OF_A_CALL if len(reads.for_values) else _FIX,
        hint="total += loss.detach()  # in a sum of losses; total.item() where it is logged",
    )
