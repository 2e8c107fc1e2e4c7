"""Traces with samples of a whole run beside them, by hand."""

from dataclasses import replace

from exceptional_programs import now_and_then
from pinchpoint.trace import RunFacts, RunSamples, Trace
from pinchpoint.trace.run_samples import FarStep, SampledThread, SampledWorker

MS = 1_000_000
SAVING = (
    "torch/serialization.py(1312): _save",
    "torch/serialization.py(1003): save",
    "train.py(88): save",
    "train.py(99): <module>",
)
EVALUATING = (
    "torch/nn/modules/linear.py(134): forward",
    "torch/nn/modules/module.py(1778): _wrapped_call_impl",
    "train.py(40): evaluate",
    "train.py(99): <module>",
)
WAITING = (
    "threading.py(327): wait",
    "torch/utils/data/dataloader.py(1400): _get_data",
    "train.py(97): <module>",
)
TRAINING = ("torch/_tensor.py(623): backward", "train.py(95): <module>")
COUNTING = ("words.py(8): count_words", "threading.py(982): run")
UNPICKLING = (
    "torch/_utils.py(196): _rebuild_tensor",
    "multiprocessing/queues.py(122): get",
    "torch/utils/data/_utils/pin_memory.py(52): _pin_memory_loop",
)
PINNING = ("torch/utils/data/_utils/pin_memory.py(57): pin_memory", *UNPICKLING[2:])
SLEEPING = ("threading.py(327): wait", "writer.py(5): run")


def samples(
    seen: tuple[str, ...] = TRAINING,
    *,
    every: int = 5,
    count: int = 100,
    usual_ms: int = 27,
    far_ms: int = 504,
    looks: int = 20,
    beside: tuple[str, ...] | None = None,
    beside_cpu_ratio: float = 0.5,
    late_ns: int = 0,
    queued_ratio: float = 0.0,
    workers: tuple[SampledWorker, ...] = (),
    gc_called_at: tuple[str, ...] = (),
    **exact: int,
) -> RunSamples:
    """A run whose every ``every``-th step takes ``far_ms``, with looks at ``seen`` in it."""
    numbers = tuple(range(every - 1, count, every)) if every else ()
    excess = (far_ms - usual_ms) * MS
    frames = tuple(dict.fromkeys((*seen, *TRAINING, *(beside or ()))))
    stacks = tuple(tuple(map(frames.index, stack)) for stack in (seen, TRAINING, beside or ()))
    queued = round(queued_ratio * far_ms * MS)
    events = [
        FarStep(
            step=number,
            ns=far_ms * MS,
            excess_ns=excess,
            wait_ns=exact.get("wait_ns", 0),
            gc_ns=exact.get("gc_ns", 0),
            save_ns=exact.get("save_ns", 0),
            queued_ns=queued,
            throttled_ns=0,
            faults=0,
            looks=looks,
            seen=((0, far_ms * 1000),) if looks else (),
            gc_called_at=gc_called_at,
        )
        for number in numbers
    ]
    total = count * usual_ms * MS + len(numbers) * excess
    seconds = total / 1e9
    threads = [SampledThread("MainThread", True, 500, round(0.5e9 * seconds), ((1, 500),))]
    if beside:
        cpu_ns = round(beside_cpu_ratio * 1e9 * seconds)
        threads.append(SampledThread("tokens", False, 500, cpu_ns, ((2, 500),)))
    return RunSamples(
        every_s=0.02,
        seconds=seconds,
        looks=500,
        late_median_ns=late_ns,
        cost_ns=0,
        frames=frames,
        stacks=stacks,
        threads=tuple(threads),
        typical_ns=usual_ms * MS,
        count=count,
        total_ns=total,
        far=len(numbers),
        excess_ns=len(numbers) * excess,
        far_steps=numbers,
        far_excess_ns=(excess,) * len(numbers),
        usual=((1, 1_000_000),),
        events=tuple(events),
        workers=workers,
    )


def sampled(found: RunSamples, trace: Trace | None = None) -> Trace:
    """Ten steps of 10 ms without an exception, of a run with these samples."""
    trace = now_and_then("checkpoint", ()) if trace is None else trace
    return replace(trace, run=RunFacts(samples=found))
