"""Runtime and driver calls, operating-system calls, samples and the profiler's own work."""

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.database import Column, Database
from pinchpoint.importers.nsys.database import Strings, interned
from pinchpoint.trace import HostKind, Names
from pinchpoint.trace.arrays import Codes, Ints, NameIds
from pinchpoint.trace.kinds import api_kind, without_version

NONE = -1  # no position of a row

# CUPTI's overhead types, spelt as the PyTorch profiler spells them
_OVERHEAD = {
    1: "Driver Compiler", 2: "Driver Compiler", 3: "Activity Buffer Request", 4: "Instrumentation",
    5: "Resource", 6: "Runtime Triggered Module Loading", 7: "Lazy Function Loading",
    8: "Command Buffer Full",
}  # fmt: skip


@dataclass(frozen=True)
class Calls:
    """Intervals on host threads: API calls, OS calls, samples (no length) or overhead."""

    start: Ints
    end: Ints
    name: NameIds
    tid: Ints
    kind: Codes  # ApiKind for API calls, HostKind for the others
    correlation: Ints

    def __len__(self) -> int:
        return len(self.start)


def read_api_calls(database: Database, strings: Strings, names: Names) -> Calls | None:
    """CUDA runtime and driver calls without their version suffix; None if not recorded."""
    found = database.integers(
        "CUPTI_ACTIVITY_KIND_RUNTIME", ("start", "end", "globalTid", "nameId", "correlationId")
    )
    if not {"start", "end", "nameId"} <= set(found):
        return None
    spelt = {i: without_version(text) for i, text in strings.items()}
    name = interned(found["nameId"], spelt, names, "(unnamed call)")
    kinds = np.zeros(len(names), np.uint8)
    for position in np.unique(name).tolist():
        kinds[position] = api_kind(names[position])
    correlation = _or_none(found.get("correlationId"), len(name))
    return _calls(found, name, kinds[name], correlation)


def read_os_calls(database: Database, strings: Strings, names: Names) -> Calls | None:
    """Operating-system calls longer than the recording's threshold; None if not recorded."""
    found = database.integers("OSRT_API", ("start", "end", "globalTid", "nameId"))
    if not {"start", "end", "nameId"} <= set(found):
        return None
    name = interned(found["nameId"], strings, names, "(unnamed call)")
    return _calls(found, name, np.full(len(name), HostKind.OS_CALL, np.uint8))


def read_overhead(database: Database, strings: Strings, names: Names) -> list[Calls]:
    """What the profiler and the driver report as overhead, one element a table."""
    found = database.integers(
        "CUPTI_ACTIVITY_KIND_OVERHEAD", ("start", "end", "globalTid", "overheadType")
    )
    parts = []
    if {"start", "end", "overheadType"} <= set(found):
        types = found["overheadType"].filled(NONE)
        distinct, inverse = np.unique(types, return_inverse=True)
        texts = [_OVERHEAD.get(t, "Profiler Overhead") for t in distinct.tolist()]
        name = np.array(names.ids_of(texts), np.int32).reshape(-1)[inverse]
        parts.append(_calls(found, name, np.full(len(name), HostKind.OVERHEAD, np.uint8)))
    found = database.integers("PROFILER_OVERHEAD", ("start", "end", "globalTid", "nameId"))
    if {"start", "end", "nameId"} <= set(found):
        name = interned(found["nameId"], strings, names, "Profiler Overhead")
        parts.append(_calls(found, name, np.full(len(name), HostKind.OVERHEAD, np.uint8)))
    return parts


def read_samples(database: Database, strings: Strings, names: Names) -> Calls | None:
    """CPU samples, named after the function that ran; they have no length. None if none."""
    events = database.integers("COMPOSITE_EVENTS", ("id", "start", "globalTid"))
    chains = database.integers("SAMPLING_CALLCHAINS", ("id", "symbol", "stackDepth"))
    if not {"id", "start"} <= set(events) or not {"id", "symbol", "stackDepth"} <= set(chains):
        return None
    top = chains["stackDepth"].filled(NONE) == 0
    sample, symbol = chains["id"].values[top], chains["symbol"]
    name_of_chain = interned(
        Column(symbol.values[top], symbol.missing[top]), strings, names, "(unknown function)"
    )
    order = np.argsort(sample, kind="stable")
    place = np.searchsorted(sample[order], events["id"].values)
    known = place < len(order)
    known[known] = sample[order][place[known]] == events["id"].values[known]
    unknown = names.id_of("(unknown function)")
    name = np.full(len(place), unknown, np.int32)
    name[known] = name_of_chain[order][place[known]]
    events["end"] = events["start"]
    return _calls(events, name, np.full(len(name), HostKind.OS_CALL, np.uint8))


def _calls(
    found: dict[str, Column],
    name: NameIds,
    kind: Codes,
    correlation: Ints | None = None,
) -> Calls:
    start, end = found["start"], found["end"]
    tid = _or_none(found.get("globalTid"), len(name))
    if correlation is None:
        correlation = np.full(len(name), NONE, np.int64)
    sane = ~start.missing & ~end.missing & (end.values >= start.values)
    sane &= (np.abs(start.values) < 2**61) & (np.abs(end.values) < 2**61)
    return Calls(
        start.values[sane], end.values[sane], name[sane], tid[sane], kind[sane], correlation[sane]
    )


def _or_none(column: Column | None, count: int) -> Ints:
    return np.full(count, NONE, np.int64) if column is None else column.filled(NONE)
