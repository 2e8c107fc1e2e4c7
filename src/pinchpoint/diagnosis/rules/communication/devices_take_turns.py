"""Several devices of one process work one after the other, and each waits while another works.

## What it looks for
One process that gives work to several devices, of which even the busiest is busy for clearly less
time than all together, in a step that the devices bound and not the host. So layers lie on
different devices, and a batch goes through them one by one (`device_map="auto"`, a pipeline made by
hand). Devices that work side by side, however unevenly, and devices that all wait for the host are
no such thing; one process a device is a job of ranks (`pinchpoint ranks`).

## Why it matters
Of N devices N - 1 wait at any time: the step takes as long as on one device with enough memory, and
the copies between them on top.

## How to fix it
Cut the batch into micro-batches and let each device work on another one (a pipeline schedule), or
cut each layer instead of the model (tensor parallelism: all devices work at the same time, also on
a batch of one). Where the model fits on one device, leave it there, and give the others batches of
their own.

How much it gives depends on the schedule: with M micro-batches on N devices a step takes
(M + N - 1) / M times what the busiest device works (Huang et al., GPipe, 2019); N micro-batches are
taken as the least, very many as the most.

## When to ignore it
Where the model does not fit otherwise and throughput does not matter.
"""

from collections.abc import Iterator

from pinchpoint.analysis.device.activity import OneDevice, device_activity, each_device
from pinchpoint.analysis.replay.binding import Binding, bound
from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("device_ops",), record=CPU_AND_DEVICE, advice=NO_HINT)

MOST_NAMED = 8  # devices, as a machine has


def check(trace: Trace) -> Iterator[Found]:
    """Devices that hand work over."""
    facts, step = bound(trace), corrected_step_ns(trace)
    if facts.by != Binding.TURNS or step is None:
        return
    devices, together = each_device(trace), device_activity(trace)
    busy = step * facts.device_ratio
    share = max(one.busy_ns for one in devices) / together.busy_ns
    bubble = (2 * len(devices) - 1) / len(devices)
    most = busy * (1 - share)
    yield Found(
        summary=(
            f"{len(devices)} devices work one after the other: the busiest works"
            f" {duration(round(busy * share))} of a step of {duration(step)}, and waits while"
            " others work"
        ),
        evidence=tuple(_evidence(devices)),
        cost_ns_per_step=round(most),
        saving_ns_per_step=(round(max(0.0, busy * (1 - share * bubble))), round(most)),
        leaves_ns_per_step=round(busy * share),
        fix="Let the devices work at the same time: micro-batches through a pipeline, or each"
        " layer cut over all devices",
        hint="torch.distributed.pipelining.ScheduleGPipe(stage, n_microbatches=16)",
        confirm='pinchpoint bench ab -- "python train.py" "torchrun train_pipelined.py"',
        confidence="low",
    )


def _evidence(devices: tuple[OneDevice, ...]) -> Iterator[Evidence]:
    for one in devices[:MOST_NAMED]:
        if one.idle_ratio is not None:
            yield Evidence(f"idle, device {one.device}", round(one.idle_ratio, 4), "ratio")
