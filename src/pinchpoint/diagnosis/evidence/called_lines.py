"""How long the program was at the calls of libraries that were looked into."""

from collections.abc import Sequence

from msgspec.structs import replace

from pinchpoint.analysis.device.activity import device_activity
from pinchpoint.analysis.host.frames import NAMELESS, Owner, frame_of
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.stacks import own_frame
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.diagnosis.evidence.slow_ways.way import Said, Way
from pinchpoint.diagnosis.evidence.thread_of_steps import thread_of_steps
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.rule import ANY_PROGRAM, MATERIAL_STEP_RATIO, NotChecked
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_samples import Called, SampledThread, SampledWorker

FEWEST_LOOKS = 10  # of fewer, the share of a line is not known within a third
LEAST_RUN_RATIO = 0.05  # of a run that was not recorded: less is within what two runs differ by
# What is seen of one thread is off by as much as a tenth where others take its cores.
_SURE = 0.9


@dataclass(frozen=True)
class CalledLine:
    """A call and the time of one thread at it."""

    call: Called
    us: float
    of_us: int  # of that thread, in all
    looks: float

    @property
    def ratio(self) -> float:
        """Its share of the thread's time."""
        return self.us / max(self.of_us, 1)

    @property
    def location(self) -> Location | None:
        """The line of the program."""
        frame = own_frame((self.call.at,))
        return None if frame is None else Location(frame.file, frame.line, frame.function)

    @property
    def said(self) -> str:
        """``self.rng.choice() in negatives (data.py:15)``."""
        at = self.location
        return f"{self.spelt}{f' in {at}' if at else ''}"

    @property
    def spelt(self) -> str:
        """``self.rng.choice()``."""
        call = self.call
        if call.doing.endswith("()") and call.doing != "()":
            return call.doing
        return f"{call.called.rpartition('.')[2]}()" if call.called != "@" else "A product (@)"


def called_lines(trace: Trace, thread: SampledThread) -> list[CalledLine]:
    """Of one thread, most time first."""
    samples = trace.run.samples if trace.run else None
    notes = samples.called if samples else ()
    of_us = sum(one.us for one in thread.spent) + thread.unplaced_us
    found = []
    for call in notes:
        us, looks = _time_at(call, notes, thread)
        if looks >= FEWEST_LOOKS:
            found.append(CalledLine(call, us, of_us, looks))
    return sorted(found, key=lambda line: -line.us)


def _time_at(call: Called, notes: Sequence[Called], thread: SampledThread) -> tuple[float, float]:
    """What the thread is at in its own line says which call it is; inside of a library only the
    line is known, and is shared among its calls as looks found them."""
    direct_us = direct = inside_us = inside = 0
    for one in thread.spent:
        if not one.frames:
            continue
        if one.frames[0] == call.at:
            mine = one.doing == call.doing
            direct_us, direct = direct_us + mine * one.us, direct + mine * one.looks
        elif _is_inside(one.frames, call.at):
            inside_us, inside = inside_us + one.us, inside + one.looks
    beside = [other for other in notes if other.at == call.at]
    within = {id(other): max(other.looks - _direct(other, thread), 0) for other in beside}
    share = within[id(call)] / max(sum(within.values()), 1)
    return direct_us + share * inside_us, direct + share * inside


def _direct(call: Called, thread: SampledThread) -> int:
    mine = (o for o in thread.spent if o.frames and o.frames[0] == call.at)
    return sum(one.looks for one in mine if one.doing == call.doing)


def _is_inside(frames: tuple[str, ...], at: str) -> bool:
    """Whether a library was called there, which may have called the program back."""
    if at not in frames:
        return False
    below = frame_of(frames[frames.index(at) - 1])
    return below is None or below.owner is not Owner.USER or below.function in NAMELESS


def called_in_workers(trace: Trace) -> list[CalledLine]:
    """Of all worker processes of loaders together, most looks first; time is counted in looks."""
    samples = trace.run.samples if trace.run else None
    workers = samples.workers if samples else ()
    of = sum(worker.looks for worker in workers)
    first: dict[tuple[str, str], Called] = {}
    looks: dict[tuple[str, str], float] = {}
    for worker in workers:
        for call in worker.called:
            key = (call.at, call.called)
            if key not in first or call.looks > first[key].looks:
                first[key] = call  # what was seen in the worker with most of it
            looks[key] = looks.get(key, 0.0) + _looks_at(call, worker)
    found = [CalledLine(call, looks[key], of, looks[key]) for key, call in first.items()]
    return sorted((f for f in found if f.looks >= FEWEST_LOOKS), key=lambda line: -line.us)


def _looks_at(call: Called, worker: SampledWorker) -> float:
    """A line's looks are shared among its calls as they were found there."""
    seen = sum(looks for frames, looks in worker.stacks if _is_there(frames, call.at))
    beside = sum(other.looks for other in worker.called if other.at == call.at)
    return min(call.looks, call.looks / max(beside, 1) * seen)


def _is_there(frames: tuple[str, ...], at: str) -> bool:
    return frames[:1] == (at,) or _is_inside(frames, at)


def of_steps(trace: Trace) -> tuple[int, list[CalledLine]]:
    """The mean step in nanoseconds and the calls of its thread; raises :class:`NotChecked`."""
    base, thread = step_base_ns(trace), thread_of_steps(trace)
    if base is None or thread is None:
        raise NotChecked("the thread of the steps was not looked at")
    return base, called_lines(trace, thread)


def found_slow(line: CalledLine, way: Way, said: Said) -> Found:
    """A finding about a slow way; ``{time}`` stands for its time."""
    return Found(
        summary=f"{line.said} {said.does}: {{time}}",
        evidence=(),
        fix=way.instead,
        hint=way.hint,
        confidence="high" if way.always else "medium",
    )


def in_steps(
    trace: Trace, line: CalledLine, base: int, left: tuple[float, float], found: Found
) -> Found | Small:
    """The finding with what it takes of a step, and what a fix wins that leaves such a share."""
    if line.ratio < MATERIAL_STEP_RATIO:
        return Small(line.ratio, MATERIAL_STEP_RATIO)
    took = line.ratio * base
    least, most = (round(took * (1 - one)) for one in (left[1], left[0]))
    # A device may work meanwhile, at most for as long as it works at all.
    hidden = 0 if computes_on_cpu(trace) else round((1 - _idle_ratio(trace)) * base)
    least = max(round(_SURE * least) - hidden, 0)
    likely = max(round(took * (1 - sum(left) / 2)) - hidden // 2, least)
    return replace(
        found,
        summary=found.summary.format(time=f"{duration(round(took))} of a step"),
        evidence=(*evidence_of(line), *found.evidence),
        cost_ns_per_step=round(took),
        saving_ns_per_step=(least, most),
        likely_saving_ns=likely,
        location=line.location,
        confirm=ANY_PROGRAM,
    )


def _idle_ratio(trace: Trace) -> float:
    """Of the recorded time, in which the device has nothing to do; 0 where that is not known."""
    return device_activity(trace).idle_ratio or 0.0


def in_run(
    trace: Trace, left: tuple[float, float], line: CalledLine, found: Found
) -> Found | Small:
    """The same of a run of which nothing else was recorded."""
    from pinchpoint.diagnosis.evidence.run_places import account_of, of_run, of_the_run

    total = account_of(trace).total_ns
    took = 1000 * line.us
    if took < LEAST_RUN_RATIO * total:
        return Small(took / max(total, 1), LEAST_RUN_RATIO, "the run")
    won = round(took * (1 - sum(left) / 2))
    return replace(
        found,
        summary=found.summary.format(time=of_the_run(round(took), total)),
        evidence=(*evidence_of(line), *found.evidence),
        cost_ns_per_step=won,
        consequence=f"about {of_run(won, total)}",
        run_ratio=won / max(total, 1),
        location=line.location,
        confirm=ANY_PROGRAM,
    )


def main_thread(trace: Trace) -> SampledThread:
    """Raises :class:`NotChecked` where it was not looked at."""
    samples = trace.run.samples if trace.run else None
    found = next((t for t in samples.threads if t.main), None) if samples else None
    if found is None:
        raise NotChecked("the threads of the whole run were not looked at")
    return found


def evidence_of(line: CalledLine) -> tuple[Evidence, ...]:
    """What is called there, and what it is given."""
    return (
        Evidence("looks that found it there", round(line.looks), "count"),
        Evidence("what is called", line.call.called, "name"),
        *(Evidence(f"given: {_name(one.name)}", _kind(one), "words") for one in line.call.given),
    )


def _name(name: str) -> str:
    if name.isdecimal():
        return f"argument {int(name) + 1}"
    return {"self": "its object", "@": "times", "[]": "index", "[:]": "first", "[-:]": "last"}.get(
        name, name
    )


def _kind(given: object) -> str:
    from pinchpoint.trace.run_samples import Given

    assert isinstance(given, Given)
    number = "" if given.value is None or given.shape else f" {given.value:g}"
    shape = " x ".join(f"{n:,}" for n in given.shape)
    return " ".join(w for w in (shape, given.dtype, given.is_of, given.kind) if w) + number
