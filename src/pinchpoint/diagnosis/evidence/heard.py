"""What was heard of functions of the program in a few steps, as rules read it."""

from pinchpoint.analysis.host.frames import PythonFrame, frame_of
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.diagnosis.finding import Location
from pinchpoint.trace import Trace
from pinchpoint.trace.run_samples import HeardCalls, HeardFunction

FEWEST_TOLD = 4  # calls: of fewer, two may be alike by chance
# An answer is more than a sign that something was done: a name, a table, a row of numbers.
FEWEST_NUMBERS = 8
# Of numbers and letters, of which one may be the same by chance: answers that differ with what was
# given tell a function of it.
FEWEST_ANSWERS = 2
_STEPS_THAT_MOVE = ("optimizer", "loader")  # weights or batches are others in each


def heard_calls(trace: Trace) -> HeardCalls | None:
    """None where nothing was listened to."""
    samples = trace.run.samples if trace.run else None
    return None if samples is None else samples.heard


def heard_of(trace: Trace, place: Location | None) -> HeardFunction | None:
    """What was heard of the function that a line is in."""
    heard = heard_calls(trace)
    for one in heard.functions if heard and place else ():
        frame = frame_of(one.frame)
        assert place is not None
        if frame and (frame.file, frame.function) == (place.file, place.function):
            return one
    return None


def _there(trace: Trace, place: Location | None) -> list[HeardFunction]:
    """The function that a line is in, and those of libraries that it calls."""
    heard, found = heard_calls(trace), []
    for one in heard.functions if heard and place else ():
        assert place is not None
        frames = [frame_of(name) for name in (one.frame, one.caller) if name]
        at = (place.file, place.function)
        if any(f is not None and (f.file, f.function) == at for f in frames):
            found.append(one)
    return found


def caller_of(one: HeardFunction) -> PythonFrame | None:
    """The line of the program that calls it."""
    return None if one.caller is None else frame_of(one.caller)


def takes_ns(trace: Trace, one: HeardFunction) -> int:
    """Of the mean step without the profiler: its share of the steps that were listened to, which
    others may have made longer or shorter than most."""
    heard, base_ns = heard_calls(trace), step_base_ns(trace)
    if heard is None or not heard.step_ns or not base_ns:
        return round(one.ns)
    return round(min(one.ns / heard.step_ns, 1.0) * base_ns)


def gives_the_same(one: HeardFunction) -> bool:
    """Most calls are given what an earlier one was, and all of these answer the same."""
    known = one.told >= FEWEST_TOLD and not one.untold
    again = 2 * one.distinct <= one.told and one.new_ratio <= 0.5
    a_table = one.numbers >= FEWEST_NUMBERS and one.varied
    return known and again and one.alike and (a_table or one.answers >= FEWEST_ANSWERS)


def always_new(one: HeardFunction) -> bool:
    """Most calls are given something that no call before was, or answer otherwise."""
    return one.told >= FEWEST_TOLD and (2 * one.distinct > one.told or not one.alike)


def changes_each_time(trace: Trace, place: Location | None) -> bool:
    """Whether calls of the function there were listened to, and are something else each time."""
    one = heard_of(trace, place)
    return one is not None and always_new(one)


# Of a large array: a program that does well has none, and one in twenty takes as long as the rest.
TINY_RATIO = 0.05


def said_of(trace: Trace, place: Location | None) -> str:
    """What was heard of the function there, where that tells what to do about it."""
    mine = [one for one in _there(trace, place) if one.tiny_ratio >= TINY_RATIO]
    if mine:
        most = max(mine, key=lambda one: one.tiny_ratio)
        frame = frame_of(most.frame)
        who = frame.function if frame else "it"
        what = f"{who} is given" if most.tiny_of == "given" else f"{who} gives"
        return (
            f"; of the numbers of an array that {what} {100 * most.tiny_ratio:.0f} % are subnormal,"
            " of which each takes a processor a hundred cycles and more: set them to zero"
        )
    one = heard_of(trace, place)
    if one is None:
        return ""
    if always_new(one):
        new = "is given something new" if 2 * one.distinct > one.told else "gives something else"
        return f"; it {new} in each of its calls"
    if one.untold and not one.told:
        return f"; whether it is given the same again is not known: {one.why}"
    return ""


def something_is_new(heard: HeardCalls) -> bool:
    """Whether steps are seen to do something else each time: a measurement repeats by intent."""
    return heard.by in _STEPS_THAT_MOVE or any(map(always_new, heard.functions))


def outermost_again(heard: HeardCalls) -> list[HeardFunction]:
    """Functions that give the same again, but for those that others of these call."""
    rows = {row for row, one in enumerate(heard.functions) if gives_the_same(one)}
    return [heard.functions[row] for row in sorted(rows) if not rows & set(_around(heard, row))]


def _around(heard: HeardCalls, row: int) -> tuple[int, ...]:
    return tuple(at for at in heard.functions[row].inside if at != row)
