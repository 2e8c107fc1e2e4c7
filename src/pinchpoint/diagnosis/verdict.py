"""What bounds the step, in one sentence."""

from collections.abc import Callable

from pinchpoint.analysis.device.categories import Category
from pinchpoint.analysis.device.kernel_names import LABELS, category_of_operator
from pinchpoint.analysis.host.frames import Owner
from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.mean.mean_step import usual_step_ns
from pinchpoint.analysis.ranks.accounting import between_ranks_ratio, one_of_many
from pinchpoint.analysis.replay.binding import HELD_UP_RATIO, Binding, Bound, bound
from pinchpoint.analysis.replay.unprofiled import unprofiled_breakdown
from pinchpoint.analysis.steps.in_steps import phases
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.accounting import OTHER_OPERATORS, Breakdown, breakdown
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.deaths import died
from pinchpoint.diagnosis.evidence.exceptions import most_of_the_mean, on_the_mean
from pinchpoint.diagnosis.evidence.loader_start import workers_started
from pinchpoint.diagnosis.evidence.named_time import (
    heaviest_collective,
    heaviest_of,
    in_ranges,
    slow_launches,
)
from pinchpoint.diagnosis.evidence.whole_run import before_the_steps, waits_for_others
from pinchpoint.diagnosis.finding import Location
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO, shows_torch
from pinchpoint.diagnosis.without_steps import said_without_steps
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.durations import duration

MOST_PHASES = 4  # in a sentence
MOST_OPERATORS = 2  # in a sentence
MOST_OF_RUN_RATIO = 0.5  # before its steps, or at one place: that is what its time is spent on
LEAST_PLACE_RATIO = 0.2  # stacks lengthen what calls much; a place below is not the main one

ONE_OF_MANY = "This is one of"  # begins what is said of one rank's recording


def verdict(trace: Trace) -> str:
    """The sentence, after that of threads that died; empty where there is no step to speak of."""
    return f"{died(trace)}{_bound(trace)}".strip()


def _bound(trace: Trace) -> str:
    facts, parts = bound(trace), unprofiled_breakdown(trace) or breakdown(trace)
    if not parts.typical_ns:
        return said_without_steps(trace)
    if not parts.of_group("device") + parts.of_group("idle") + parts.of_group("exposed"):
        said = _without_device(trace, parts)
        return _with_the_mean(trace, said) + _between_ranks(trace, parts)
    held = _HELD_UP.get(facts.by)
    if held is not None and held(facts)[0] < facts.device_ratio:
        said = _held_up(facts, parts, *held(facts))
    else:
        said = _SENTENCES[facts.by](facts, parts)
    if f"mostly on {LABELS[Category.OTHER]} (" in said:
        said += _heaviest_other(trace)
    if facts.by == Binding.COMMUNICATION:
        said += heaviest_collective(trace)
    if facts.by == Binding.HOST:
        said += slow_launches(trace, parts)
    said += in_ranges(trace, parts)
    said = _with_the_mean(trace, said) + _before_the_steps(trace)
    return said + _quicker_than_most(trace, parts) + _between_ranks(trace, parts)


def _with_the_mean(trace: Trace, said: str) -> str:
    """What is said of the typical step, after what holds most of the mean one if not in it."""
    first = most_of_the_mean(trace)
    if not first:
        return said + on_the_mean(trace)
    return f"{first} {said.replace('this step', 'the typical step')}"


def _before_the_steps(trace: Trace) -> str:
    """How much of a run that has ended passed before its third step, where that is most of it."""
    course = trace.run.course if trace.run else None
    if course is None or (course.before_ns or 0) < MOST_OF_RUN_RATIO * course.total_ns:
        return ""
    return f" {before_the_steps(course)} passed before its third step."


def _quicker_than_most(trace: Trace, parts: Breakdown) -> str:
    """The doubt where the run's steps without the profiler took much longer than those recorded."""
    usual, recorded = usual_step_ns(trace), parts.typical_ns
    if usual is None or not recorded or usual < (1 + HELD_UP_RATIO) * recorded:
        return ""
    return (
        f" The recorded steps are quicker than others of the run: {duration(recorded)}, where those"
        f" that were timed without the profiler take {duration(usual)}. With more of them recorded"
        " (pinchpoint run --steps 60), what holds the others up shows."
    )


def _between_ranks(trace: Trace, parts: Breakdown) -> str:
    """What one rank of a job cannot tell."""
    ranks, between = one_of_many(trace), between_ranks_ratio(parts)
    if ranks is None:
        return ""
    who = f" {ONE_OF_MANY} {ranks:,} ranks: "
    if between < MATERIAL_STEP_RATIO:
        return f"{who}whether the others wait for it, only all of them together show."
    return (
        f"{who}{_percent(between)} of its step are collectives that nothing hides, and"
        " whether it waits for a late rank there or for the link, only all of them together show."
    )


def _nothing_of_the_device(trace: Trace) -> str:
    """That nothing was recorded of a device, or that what was is in a form that is not read."""
    rows = trace.health
    facts = [] if rows is None else [trace.names[n] for n in rows["fact"].tolist()]
    if "device-unread" in facts:
        return "What the device did is in the file in a form that is not read"
    if "device-left-out" in facts:
        return "The program has a device, and what that did was not recorded"
    return "No device activity was recorded"


def _without_device(trace: Trace, parts: Breakdown) -> str:
    whole = parts.typical_ns or 1
    silent, python = (parts.of_part(part) for part in (_SILENT, _PYTHON))
    nothing = _nothing_of_the_device(trace)
    if 2 * silent >= whole:
        marked = phases(trace)
        if 2 * sum(ns for _, ns in marked) >= whole:
            longest = marked[:MOST_PHASES]
            shown = ", ".join(f"{name} ({_percent(ns / whole)})" for name, ns in longest)
            return f"{nothing}, and of the host only ranges: {shown}."
        return (
            f"{nothing}, and for {_percent(silent / whole)} of the time"
            f" nothing that the host did either: {_looked_at(trace)}."
        )
    place = _named_place(trace)
    if 2 * python >= whole and not place and not _has_stacks(trace.with_names):
        option = " (with_stack=True)" if shows_torch(trace) else ""
        return (
            f"{nothing}. For {_percent(python / whole)} of the step the host"
            f" was outside its operators; Python stacks{option} would show what it did there."
        )
    most = f"On the host most of the step: {_top(parts, 'host')}."
    return (
        f"{nothing}. {most}{workers_started(trace, parts)}{_other_operators(trace, parts)}{place}"
    )


def _other_operators(trace: Trace, parts: Breakdown) -> str:
    """The operators of no known kind that take most, where most of the step is in these."""
    if not computes_on_cpu(trace) or _longest(parts, "host")[1] != OTHER_OPERATORS.label:
        return ""
    from pinchpoint.analysis.limits.on_cpu import cpu_pieces

    whole = parts.typical_ns or 1
    mine = [piece for piece in cpu_pieces(trace) if not category_of_operator(piece.name)]
    told = [f"{one.name} ({_percent(one.ns_per_step / whole)})" for one in mine[:MOST_OPERATORS]]
    at_once = sum(piece.ns_per_step for piece in mine[:MOST_OPERATORS]) > whole
    sums = ", added up where several ran at once" if at_once else ""
    return f" Mostly these are {' and '.join(told)}{sums}." if told else ""


def _looked_at(trace: Trace) -> str:
    """Where looks at the program found it while nothing was recorded of it."""
    waits = waits_for_others(trace)
    if waits is None or waits.location is None or waits.ratio < MOST_OF_RUN_RATIO:
        return "what it went into does not show"
    return f"{waits.looks} of {waits.of} looks at it find it waiting in {waits.location}"


def _named_place(trace: Trace) -> str:
    """The function of the program that takes most, where a run's window for names shows one."""
    named = trace.run.named if trace.run else None
    if named is None or named.host_ops is None:
        return ""
    # Another thread may wait all the time, and its frames would show it as busy.
    from pinchpoint.analysis.tables.call_tree import SourceTable, source_table

    host, mine = named.host_ops, named.host_ops["thread"] == main_thread(named)
    table = source_table(named, mine)
    if not isinstance(table, SourceTable):
        return ""
    whole_ns = int(host.end_ns[mine].max() - host["start_ns"][mine].min())
    # What is open from step to step holds the loop: that the step is in it says nothing.
    count = len(steps(named).durations_ns)
    rows = (r for r in table.rows if r.owner == Owner.USER and r.calls >= count)
    top = max(rows, key=lambda row: row.host_self_ns, default=None)
    if top is None or top.host_self_ns < LEAST_PLACE_RATIO * whole_ns:
        return ""
    share = _percent(top.host_self_ns / whole_ns)
    place = Location(file=top.frame.file, line=top.frame.line, function=top.frame.function)
    return f" With stacks, {share} of it is in {place}."


def _has_stacks(trace: Trace) -> bool:
    return trace.host_ops is not None and bool((trace.host_ops["kind"] == HostKind.PYTHON).any())


def _device(facts: Bound, parts: Breakdown) -> str:
    work, mostly = _percent(facts.device_ratio), _top(parts, "device")
    if facts.other_ratio < HELD_UP_RATIO:
        return f"The device bounds this step: it works {work} of it, mostly on {mostly}."
    waits = _percent(facts.other_ratio)
    return (
        f"The device works {work} of this step, mostly on {mostly}. For {waits} it waits and the"
        f" host does not explain it, mostly: {_top(parts, 'idle')}."
    )


def _heaviest_other(trace: Trace) -> str:
    """The name of the kernel that takes most of the time of kernels of no known kind."""
    found = heaviest_of(trace, Category.OTHER)
    return f" Of the time of these kernels, {found[0]} takes {_percent(found[1])}." if found else ""


def _held_up(facts: Bound, parts: Breakdown, waiting_ratio: float, what: str) -> str:
    """The device works longer than it waits, so nothing but it bounds the step by itself."""
    why = f", mostly: {_top(parts, 'idle')}" if facts.by == Binding.HOST else ""
    return (
        f"The device works {_percent(facts.device_ratio)} of this step, mostly on"
        f" {_top(parts, 'device')}. {what} hold{'' if what == 'Copies' else 's'} it up for"
        f" {_percent(waiting_ratio)}{why}."
    )


def _host(facts: Bound, parts: Breakdown) -> str:
    idle, why = _percent(facts.host_ratio), _top(parts, "idle")
    return f"The host bounds this step: it leaves the device idle {idle} of it. Mostly: {why}."


def _input(facts: Bound, parts: Breakdown) -> str:
    waiting = _percent(facts.input_ratio)
    return f"The input pipeline bounds this step: {waiting} of it goes to waiting for the batch."


def _communication(facts: Bound, parts: Breakdown) -> str:
    exposed = _percent(facts.communication_ratio)
    return f"Communication bounds this step: for {exposed} of it nothing else runs."


def _copies(facts: Bound, parts: Breakdown) -> str:
    exposed = _percent(facts.copies_ratio)
    return f"Copies bound this step: for {exposed} of it nothing else runs on the device."


def _mixed(facts: Bound, parts: Breakdown) -> str:
    waits = {
        "host": facts.host_ratio,
        "input": facts.input_ratio,
        "communication": facts.communication_ratio,
        "copies": facts.copies_ratio,
    }
    first, second = sorted(waits, key=lambda cause: -waits[cause])[:2]
    return (
        f"Two things hold this step up: {first} ({_percent(waits[first])} of it) and "
        f"{second} ({_percent(waits[second])}); the device works {_percent(facts.device_ratio)}."
    )


def _turns(facts: Bound, parts: Breakdown) -> str:
    work, mostly = _percent(facts.device_ratio), _top(parts, "device")
    return (
        f"The devices take turns: together they work {work} of this step, mostly on {mostly}, and"
        " each of them waits while another works."
    )


def _unknown(facts: Bound, parts: Breakdown) -> str:
    if not facts.host_ratio + facts.input_ratio + facts.other_ratio:
        return "Too little ran on the device to say what bounds this program."
    idle = _percent(facts.host_ratio + facts.input_ratio + facts.other_ratio)
    return (
        f"The device is idle {idle} of this step, and the host does not explain it. Mostly:"
        f" {_top(parts, 'idle')}{_not_in_it(parts)}."
    )


def _not_in_it(parts: Breakdown) -> str:
    """While the whole device idles, nothing that it waits for is an operation of the recording."""
    waiting = parts.of_part(GapKind.DEPENDENCY.id)
    return "; nothing recorded runs meanwhile" if 2 * waiting > parts.of_group("idle") else ""


_SILENT = GapKind.UNRECORDED.id.replace("idle-", "host-")
_PYTHON = GapKind.PYTHON.id.replace("idle-", "host-")
_HELD_UP: dict[Binding, Callable[[Bound], tuple[float, str]]] = {
    Binding.HOST: lambda facts: (facts.host_ratio, "The host"),
    Binding.INPUT: lambda facts: (facts.input_ratio, "Waiting for the batch"),
    Binding.COMMUNICATION: lambda facts: (facts.communication_ratio, "Communication"),
    Binding.COPIES: lambda facts: (facts.copies_ratio, "Copies"),
}
_SENTENCES = {
    Binding.DEVICE: _device,
    Binding.HOST: _host,
    Binding.INPUT: _input,
    Binding.COMMUNICATION: _communication,
    Binding.COPIES: _copies,
    Binding.TURNS: _turns,
    Binding.MIXED: _mixed,
    Binding.UNKNOWN: _unknown,
}


def _top(parts: Breakdown, group: str) -> str:
    """The largest part of a group with its share of the step: ``matrix products (47 %)``."""
    ns, label = _longest(parts, group)
    return f"{label} ({_percent(ns / (parts.typical_ns or 1))})"


def _longest(parts: Breakdown, group: str) -> tuple[int, str]:
    times = zip(parts.ns_per_step.tolist(), parts.parts, strict=True)
    mine = [(ns, part.label.removeprefix("idle: ")) for ns, part in times if part.group == group]
    return max(mine, default=(0, "nothing"))


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.0f} %"
