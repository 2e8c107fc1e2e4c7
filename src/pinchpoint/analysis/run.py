"""What a run folder knows besides the trace: telemetry by device, the process, the machine."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.trace import RunFacts, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Mask, distinct

if TYPE_CHECKING:
    from pinchpoint.monitor.sentences import Stretch


BUSY_RATIO = 0.5  # a look in which the device had work most of the time


@dataclass(frozen=True, eq=False)
class Looks:
    """All looks at one device, or at the host; ``known[name]``: where ``values[name]`` holds."""

    time_ns: Ints
    values: Mapping[str, Floats]
    known: Mapping[str, Mask]

    def __len__(self) -> int:
        return len(self.time_ns)

    def where_known(self, name: str) -> Mask:
        """Looks that have this value."""
        return self.known.get(name, np.zeros(len(self), np.bool_))

    def of(self, name: str, chosen: Mask | None = None) -> Floats:
        """The values that are known, among the chosen looks."""
        known = self.where_known(name)
        mask = known if chosen is None else known & chosen
        return self.values[name][mask] if name in self.values else np.zeros(0)

    def median(self, name: str, chosen: Mask | None = None) -> float | None:
        """The middle value; None if there is none."""
        found = self.of(name, chosen)
        return float(np.median(found)) if len(found) else None

    def most(self, name: str, chosen: Mask | None = None) -> float | None:
        """The largest value; None if there is none."""
        found = self.of(name, chosen)
        return float(found.max()) if len(found) else None

    @property
    def busy(self) -> Mask:
        """Looks at which the device had work; all of them if nothing says so."""
        if "any_kernel_ratio" not in self.values:
            return np.ones(len(self), np.bool_)
        known = self.where_known("any_kernel_ratio")
        busy: Mask = ~known | (self.values["any_kernel_ratio"] >= BUSY_RATIO)
        return busy


@once_per_trace
def device_looks(trace: Trace) -> Mapping[int, Looks]:
    """Looks by device number; empty without telemetry."""
    counters = trace.counters
    if counters is None or not len(counters):
        return {}
    known = counters.known("device")
    numbers = distinct(counters["device"][known])
    return {
        int(number): looks
        for number in numbers
        if (looks := _looks(trace, known & (counters["device"] == number))) is not None
    }


@once_per_trace
def host_looks(trace: Trace) -> Looks | None:
    """Looks at the host; None without telemetry."""
    counters = trace.counters
    if counters is None or not len(counters):
        return None
    return _looks(trace, ~counters.known("device"))


def _looks(trace: Trace, rows: Mask) -> Looks | None:
    counters = trace.counters
    if counters is None or not rows.any():
        return None
    at = counters["time_ns"][rows]  # in order
    begins = np.append(True, at[1:] != at[:-1])
    times, place = at[begins], np.cumsum(begins) - 1
    names, values = counters["name"][rows], counters["value"][rows]
    pivot: dict[str, Floats] = {}
    known: dict[str, Mask] = {}
    for name in distinct(names):
        mine = names == name
        text = trace.names[name]
        pivot[text], known[text] = np.zeros(len(times)), np.zeros(len(times), np.bool_)
        pivot[text][place[mine]] = values[mine]
        known[text][place[mine]] = True
    return Looks(times, pivot, known)


# ------------------------------------------------------------------------------------------------
# What telemetry says by itself: spreads of every metric, and what they mean in sentences.


MOST_LOOKS = 5_000  # for sentences; of a longer log, looks at equal distances
_NOT_SPREAD = frozenset({"event_reasons"})  # bits, not a quantity


@dataclass(frozen=True)
class SampledRow:
    """One metric of one device; ``device`` is None for the host."""

    device: int | None
    metric: str
    label: str
    unit: str
    median: float
    least: float
    most: float
    looks: int


def sampled_metrics(trace: Trace) -> tuple[SampledRow, ...]:
    """Every metric that was sampled, devices first, in the order of ``monitor/sample.py``."""
    rows = [row for number, looks in device_looks(trace).items() for row in _rows(number, looks)]
    host = host_looks(trace)
    return (*rows, *(() if host is None else _rows(None, host)))


def sampled_sentences(trace: Trace) -> tuple[str, ...]:
    """What the samples mean, device by device; empty without telemetry."""
    found: list[str] = []
    devices = device_looks(trace)
    from pinchpoint.monitor.sentences import device_sentences, host_sentences

    for number, looks in devices.items():
        prefix = f"Device {number}: " if len(devices) > 1 else ""
        found += [prefix + text for text in device_sentences(_stretch(str(number), looks))]
    host = host_looks(trace)
    return (*found, *(() if host is None else host_sentences(_stretch(None, host))))


# What only a log has that says why clocks are where they are.
_REASONS = ("event_reasons", "power_capped_ratio", "thermal_slowdown_ratio")


def tells_of_clocks(trace: Trace) -> bool:
    """Whether each sampled device says if anything held it down."""
    devices = device_looks(trace).values()
    return bool(devices) and all(any(len(d.of(name)) for name in _REASONS) for d in devices)


def _rows(device: int | None, looks: Looks) -> Iterator[SampledRow]:
    from pinchpoint.monitor.sample import KNOWN_METRICS

    known = [name for name in KNOWN_METRICS if name in looks.values]
    others = sorted(set(looks.values) - set(KNOWN_METRICS))
    for name in (*known, *others):
        values = looks.of(name)
        if not len(values) or name in _NOT_SPREAD:
            continue
        about = KNOWN_METRICS.get(name)
        yield SampledRow(
            device,
            name,
            about.label if about else name,
            about.unit if about else "",
            float(np.median(values)),
            float(values.min()),
            float(values.max()),
            len(values),
        )


def _stretch(device: str | None, looks: Looks) -> "Stretch":
    count = len(looks)
    chosen = distinct(np.linspace(0, count - 1, min(count, MOST_LOOKS)).astype(np.intp))
    from pinchpoint.monitor.sample import Sample

    samples = [
        Sample(
            int(looks.time_ns[row]),
            device,
            {name: float(v[row]) for name, v in looks.values.items() if looks.known[name][row]},
        )
        for row in chosen.tolist()
    ]
    from pinchpoint.monitor.sentences import Stretch

    return Stretch(samples, "the time sampled")


# ------------------------------------------------------------------------------------------------
# Typed answers from what a run folder knows about its process and machine; None: not known.


_NOTHING = RunFacts()


def run_facts(trace: Trace) -> RunFacts:
    """What the run folder knows; without one, nothing."""
    return trace.run or _NOTHING


def workers_at_once(trace: Trace) -> int:
    """How many workers a loader had at the same time."""
    return max((w.workers or 0 for w in run_facts(trace).loader_workers), default=0)


def workers_busy_ratio(trace: Trace) -> float:
    """Share of their time that all loader workers made batches; 0 without any."""
    workers = run_facts(trace).loader_workers
    return sum(w.busy_ns for w in workers) / max(sum(w.alive_ns for w in workers), 1)


def data_wait_ns(trace: Trace) -> int | None:
    """Mean wait for the batch in the steps without the profiler."""
    waits = run_facts(trace).data_wait_ns
    return int(np.mean(waits)) if waits else None


def ranks_on_device(trace: Trace) -> int:
    """Recorded processes of this run on the device of the trace; at least the traced one."""
    facts = run_facts(trace)
    return max(1, -(-(facts.processes or 1) // (facts.devices or 1)))


def lacked_cores(trace: Trace) -> bool:
    """Whether other programs left the run less than half of the cores that it may use."""
    facts = run_facts(trace)
    cores = facts.cores_allowed or facts.cores_there
    return cores is not None and free_cores(facts, cores) < cores / 2


def free_cores(facts: RunFacts, cores: float) -> float:
    """Cores that the process may use (``cores``) and others left to it."""
    if facts.cores_of_others is None or facts.cores_there is None:
        return cores
    return min(cores, facts.cores_there - facts.cores_of_others)
