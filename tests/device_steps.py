"""Steps of device work by hand: a list of kernels, each from an operator with known inputs."""

import json
from dataclasses import dataclass, field

from builders import TraceBuilder
from pinchpoint.trace import Trace

US = 1_000
MS = 1_000_000


@dataclass(frozen=True)
class Work:
    """One kernel of a step and the operator that launches it."""

    kernel: str
    takes_us: float
    operator: str = "aten::mul"
    shapes: list = field(default_factory=list)
    dtypes: list = field(default_factory=list)
    strides: list | None = None
    values: list | None = None
    backward: bool = False
    device: dict = field(default_factory=dict)  # what else its row on the device has


def device_bound(work: list[Work], *, steps: int = 6, host_us: float = 10) -> Trace:
    """Steps whose host issues each kernel in ``host_us`` and whose device never waits."""
    b = TraceBuilder()
    issue = round(host_us * US)
    engine = b.thread("autograd")
    runs_at = 5 * US
    host_takes = (len(work) + 1) * issue
    period = max(host_takes, round(sum(w.takes_us for w in work) * US) + len(work) * US)
    b.python("train.py(1): <module>", 0, steps * period)
    for step in range(steps):
        begin = step * period
        b.step(step, begin, period)
        b.python("train.py(40): step", begin, period)
        for i, w in enumerate(work):
            at = begin + i * issue
            thread = engine if w.backward else 0
            more = {
                name: None if value is None else json.dumps(value)
                for name, value in (
                    ("shapes", w.shapes),
                    ("dtypes", w.dtypes),
                    ("strides", w.strides),
                    ("values", w.values),
                )
            }
            if w.backward:
                name = "autograd::engine::evaluate_function: MulBackward0"
                b.op(name, at, issue - 1, thread=engine)
            b.op(w.operator, at + 1, issue - 3, thread=thread, **more)
            runs_at = max(runs_at + US, at + 6 * US)
            takes = round(w.takes_us * US)
            b.launch(at + 2, issue // 2, w.kernel, runs_at, takes, thread=thread, **w.device)
            runs_at += takes
    return b.trace()
