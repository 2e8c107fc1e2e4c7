"""What a file itself shows to be wrong or missing: the facts importers may state.

Each id has the sentence for people and the severity that it has by default.
"""

from collections.abc import Sequence

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.trace import Names, Severity, Table, empty_table, table


@dataclass(frozen=True)
class FactKind:
    """One kind of health fact; ``record`` says how to do without it, where it is fatal."""

    severity: Severity
    sentence: str
    record: str = ""


FACTS: dict[str, FactKind] = {
    "run-problem": FactKind(
        Severity.WARNING, "something went wrong while the program was recorded"
    ),
    "run-document-damaged": FactKind(
        Severity.WARNING, "a part of the run folder cannot be read: what hangs on it is not checked"
    ),
    "telemetry-no-value": FactKind(
        Severity.NOTE, "the device or driver did not give a value that was asked for"
    ),
    "telemetry-torn-lines": FactKind(
        Severity.NOTE, "lines of the log are cut off or hold messages, and were left out"
    ),
    "telemetry-without-time": FactKind(
        Severity.WARNING, "samples carry no time, so only their order is known"
    ),
    "telemetry-unsound": FactKind(
        Severity.WARNING, "samples whose time or device no machine has were left out"
    ),
    "times-unsound": FactKind(
        Severity.WARNING, "events whose times make no sense were left out (buffers overflowed)"
    ),
    "looks-few": FactKind(
        Severity.WARNING, "the whole run was looked at too seldom to be sure where its time goes"
    ),
    "launches-missing": FactKind(
        Severity.NOTE, "device operations whose launching call is not in the file"
    ),
    "graphs-opaque": FactKind(
        Severity.WARNING,
        "CUDA graphs were recorded as a whole: what runs inside them is not known "
        "(record with nsys profile --cuda-graph-trace=node)",
    ),
    "graph-captured": FactKind(
        Severity.WARNING,
        "launches were captured into a graph and ran nothing here: what the graph takes shows a"
        " recording of the program at work, with its replays",
    ),
    "no-device-activity": FactKind(Severity.WARNING, "the file has no device operation"),
    "too-little": FactKind(
        Severity.FATAL,
        "hardly any device operation was recorded, and nothing of the program on the host",
        record="while the program gives work to the device, and what runs on the host as well",
    ),
    "calls-alone": FactKind(
        Severity.FATAL,
        "the file has the calls of the host alone; what the device did stands in another",
        record="with --kernel-trace, and give the folder of all its files: kernel_trace.csv stands "
        "beside this one",
    ),
    "kernels-alone": FactKind(
        Severity.WARNING,
        "counters were collected, for which each kernel has the device for itself: the time "
        "between kernels is not the program's",
    ),
    "rows-cut": FactKind(Severity.WARNING, "rows of the table are cut off and were left out"),
    "ranges-unclosed": FactKind(Severity.NOTE, "ranges that were open when recording stopped"),
    "cut-off": FactKind(
        Severity.WARNING, "the file is cut off; what stands before the cut was read"
    ),
    "cut-off-steps": FactKind(
        Severity.FATAL,
        "the file is cut off so early that no step has all its device work",
        record="copy the file again, after the profiler has written all of it",
    ),
    "broken-text": FactKind(
        Severity.WARNING, "stretches of the file are no valid events and were left out"
    ),
    "duplicate-keys": FactKind(
        Severity.NOTE, "keys of the header occur twice; the last one counts"
    ),
    "kernels-of-provider-missing": FactKind(
        Severity.WARNING,
        "nodes ran on a provider whose kernels are not in the file: their times are those of giving"
        " it work",
    ),
    "nothing-recorded": FactKind(
        Severity.FATAL,
        "the file has no event of a program",
        record="so that the recorder starts the program itself: nsys profile --trace=cuda,nvtx,osrt"
        " --export=sqlite COMMAND",
    ),
    "requests-failed": FactKind(
        Severity.WARNING, "requests failed: latencies and rates are those of the others"
    ),
    "requests-all-failed": FactKind(
        Severity.FATAL,
        "no request completed, so nothing is known of the server's latency",
        record="once a single request is answered (curl it): the log of the server says what fails",
    ),
    "times-by-operator": FactKind(
        Severity.WARNING,
        "what the device did was timed by operator, not by kernel: gaps within an operator, and"
        " what launched it, are not known (record with torch.profiler)",
    ),
    "phases-unread": FactKind(Severity.NOTE, "asynchronous events are not read"),
    "pairs-unmatched": FactKind(
        Severity.NOTE, "begin and end events without their counterpart were left out"
    ),
    "times-missing": FactKind(Severity.WARNING, "events without a start or duration were left out"),
    "times-beyond": FactKind(
        Severity.WARNING, "events at a time or for longer than any recording has were left out"
    ),
    "starts-lost": FactKind(
        Severity.WARNING, "events whose start was lost (written as 0) were left out"
    ),
    "durations-negative": FactKind(Severity.WARNING, "durations below zero were taken as zero"),
    "durations-zero": FactKind(
        Severity.FATAL,
        "no event has a duration, so nothing can be said about time",
        record="export after the profiler has stopped",
    ),
    "duration-absurd": FactKind(
        Severity.FATAL,
        "a device operation lasts longer than everything else together, which its neighbours on "
        "the stream contradict",
        record="update the profiler or the driver first",
    ),
    "after-window": FactKind(
        Severity.WARNING, "events end long after the recording did, so their times are doubtful"
    ),
    "launches-lost": FactKind(
        Severity.WARNING, "launches whose device operation is not in the file"
    ),
    "device-far-behind": FactKind(
        Severity.WARNING,
        "the device was so far behind the host that most of what it did was launched before the "
        "recording began, and most launches ran after it had ended",
    ),
    "links-missing": FactKind(
        Severity.WARNING,
        "nothing links device operations to the calls that launched them (no correlation ids), so "
        "whose work the device waited for is not known",
    ),
    "calls-missing": FactKind(
        Severity.NOTE,
        "no call of the host into the device's runtime was recorded, so when work was asked for, "
        "and what the device waited for, is not known",
    ),
    "processes-several": FactKind(
        Severity.NOTE,
        "several processes gave work to devices: more than one rank or program is in the file",
    ),
    "part-judged": FactKind(
        Severity.NOTE, "the recording has so many events that its middle alone is judged"
    ),
    "devices-several": FactKind(Severity.NOTE, "one process gave work to several devices"),
    "device-unread": FactKind(
        Severity.WARNING,
        "the file has lanes of a device whose form is not read, so what the device did is not "
        "known",
    ),
    "counters-missing": FactKind(
        Severity.WARNING,
        "profiled launches have no number: ncu failed on them, or knows none of the metrics that "
        "it was asked for",
    ),
    "tables-empty": FactKind(Severity.NOTE, "tables of the export are there and have no rows"),
    "names-missing": FactKind(
        Severity.WARNING,
        "the table of texts is missing or empty, so nothing in the file has a name",
    ),
    "tables-unread": FactKind(
        Severity.WARNING, "tables of the export have a form that is not known and were not read"
    ),
    "tables-passed-over": FactKind(
        Severity.WARNING,
        "views and virtual tables are not read, as they run what the file says: a recorder writes "
        "ordinary tables",
    ),
    "events-capped": FactKind(
        Severity.WARNING,
        "the file holds exactly 1,000,000 events, where some writers stop: others may be missing",
    ),
    "device-activity-lost": FactKind(
        Severity.FATAL,
        "most launches have no device operation in the file, so device time is unknown",
        record="fewer steps at once, and synchronise the device before the profiler stops",
    ),
    "kernels-not-recorded": FactKind(
        Severity.FATAL,
        "the program gave work to the device, but none of it was recorded",
        record="end other profilers that hold the device's counters, and switch device activity on",
    ),
    "cpu-only": FactKind(
        Severity.NOTE, "no device activity was recorded: only the host side can be judged"
    ),
    "device-left-out": FactKind(
        Severity.WARNING,
        "operators of a device's libraries ran, and nothing of that device was recorded: what the "
        "host waits for may be its work (record with device activity: ProfilerActivity.CUDA)",
    ),
    "no-host-activity": FactKind(
        Severity.NOTE,
        "no operators were recorded on the host: causes there cannot be found (record with "
        "host activity switched on)",
    ),
    "host-misnested": FactKind(
        Severity.NOTE, "operators that overlap without one being inside the other"
    ),
    "steps-partial": FactKind(
        Severity.NOTE, "the first or last step holds far fewer launches than the others"
    ),
    "no-device-properties": FactKind(
        Severity.NOTE, "the file does not say which device it was recorded on"
    ),
    "rank-unknown": FactKind(
        Severity.NOTE, "collectives were recorded, but not which rank of the job this is"
    ),
    "profiler-overhead": FactKind(
        Severity.NOTE, "the profiler reports its own work in the middle of the recording"
    ),
    "starts-before-launch": FactKind(
        Severity.NOTE, "device operations that start before their launch: the clocks differ a bit"
    ),
    "clocks-disagree": FactKind(
        Severity.WARNING,
        "many device operations start long before their launch, so delays between host and "
        "device are doubtful",
    ),
    "streams-overlap": FactKind(
        Severity.NOTE,
        "operations overlap on one stream, so their durations add up to more than the time",
    ),
    "outside-window": FactKind(
        Severity.NOTE, "the profiler left out events before and after its window"
    ),
    "stopped-early": FactKind(
        Severity.WARNING,
        "the profiler ran out of buffers and stopped before the end: record fewer steps",
    ),
    "profiler-warning": FactKind(Severity.WARNING, "the profiler warns"),
}


@dataclass(frozen=True)
class Fact:
    """One fact about one file. ``detail`` defaults to the sentence of its kind."""

    id: str
    count: int = 1
    detail: str = ""
    time_ns: int | None = None


def health_table(facts: Sequence[Fact], names: Names) -> Table:
    """The facts as the ``health`` table; empty if there are none."""
    if not facts:
        return empty_table("health")
    return table(
        "health",
        {
            "fact": np.array(names.ids_of(f.id for f in facts), np.int32),
            "severity": np.array([FACTS[f.id].severity for f in facts], np.uint8),
            "count": np.array([f.count for f in facts], np.int64),
            "detail": np.array(names.ids_of(f.detail or FACTS[f.id].sentence for f in facts)),
            "time_ns": np.array([f.time_ns or 0 for f in facts], np.int64),
        },
        {"time_ns": np.array([f.time_ns is None for f in facts])},
    )
