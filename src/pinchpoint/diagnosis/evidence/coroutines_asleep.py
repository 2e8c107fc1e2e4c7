"""Coroutines that an event loop sleeps for, by looks at its thread."""

from collections import Counter

from msgspec.structs import replace

from pinchpoint.analysis.mean.stacks import own_frame, own_functions
from pinchpoint.diagnosis.finding import Location
from pinchpoint.regex import regex
from pinchpoint.trace import Trace, once_per_trace

_SLEEP = regex(r"(?:^|/)asyncio/tasks\.py\(\d+\): sleep$")
_LOOP = regex(r"(?:^|/)asyncio/base_events\.py\(\d+\): _run_once$")
_SELECT = regex(r"(?:^|/)selectors\.py\(\d+\): select$")
_POLLS = "polls"
MOSTLY_RATIO = 0.5  # of the looks at which the loop waited; else it waits for messages as well
FEWEST_LOOKS = 10  # fewer name a place by accident


@once_per_trace
def coroutine_asleep(trace: Trace) -> Location | None:
    """The line at which a coroutine awaited ``asyncio.sleep`` most of the time that the event loop
    of the main thread had nothing else to do: one that asks for something again and again, or one
    whose function computes by itself, such as a batcher. None where it mostly waited for something
    else: messages, or a coroutine that may send requests at a pace of its own."""
    samples = trace.run.samples if trace.run else None
    main = next((t for t in samples.threads if t.main), None) if samples else None
    if samples is None or main is None:
        return None
    asleep, computing, waits = Counter[Location](), Counter[tuple[str, str]](), 0
    for one in main.spent:
        if not any(map(_LOOP.search, one.frames)):
            continue
        if not any(map(_SELECT.search, one.frames)):
            computing.update(dict.fromkeys(own_functions(one.frames), one.looks))
            continue
        waits += one.looks
        own = own_frame(one.frames[: _depth(one.frames)])
        if own is not None:
            polls = _SLEEP.search(one.frames[0]) is not None
            key = Location(own.file, own.line, own.function, operator=_POLLS if polls else None)
            asleep[key] += one.looks
    told = Counter[Location]()
    for at, looks in asleep.items():
        if at.operator or computing[at.file or "", at.function or ""] >= FEWEST_LOOKS:
            told[replace(at, operator=None)] += looks
    if told.total() < max(MOSTLY_RATIO * waits, FEWEST_LOOKS):
        return None
    return told.most_common(1)[0][0]


def _depth(frames: tuple[str, ...]) -> int:
    """How many frames are of coroutines, which are no part of the thread's own stack."""
    return next(at for at, name in enumerate(frames) if _SELECT.search(name))
