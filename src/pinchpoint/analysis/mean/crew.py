"""Threads and processes that do a program's work while its main thread waits for them."""

from collections.abc import Sequence

from pinchpoint.analysis.mean.ways import Way, waits_for_work
from pinchpoint.analysis.mean.whole_run import (
    NS_PER_US,
    Cores,
    RunPlace,
    main_spent,
    places_of,
    run_account,
)
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.run_samples import SampledThread, Spent

# Of the main thread's time: with less, what it does itself is the run.
LEAST_WAIT_RATIO = 0.3
# Of that wait, by all of them together, with a core or without: with less, they wait as well.
LEAST_WORK_RATIO = 0.2


@dataclass(frozen=True)
class Member:
    """One of them."""

    work: tuple[Spent, ...]  # where it had something to do
    on_core_ns: int
    busy_ns: int  # that it had something to do, with a core or without
    idle_ns: int  # that it waited for something to do
    queued_ns: int


@dataclass(frozen=True)
class Crew:
    """All of them, and what they do."""

    processes: bool  # of multiprocessing; else threads
    members: tuple[Member, ...]  # most work first
    wait_ns: int  # of the main thread, for them
    places: tuple[RunPlace, ...]  # their work, as shares of that wait

    @property
    def name(self) -> str:
        """``its 4 worker processes``."""
        count, what = len(self.members), "worker process" if self.processes else "thread"
        plural = ("es" if self.processes else "s") if count > 1 else ""
        return f"its {count} {what}{plural}" if count > 1 else f"another {what}"

    @property
    def on_core_ns(self) -> int:
        """Of all of them."""
        return sum(member.on_core_ns for member in self.members)


@once_per_trace
def crew(trace: Trace) -> Crew | None:
    """None where the main thread does the work itself, or nobody does any."""
    samples, account = trace.run.samples if trace.run else None, run_account(trace)
    if samples is None or account is None:
        return None
    wait_ns = sum(account.ways.get(way, 0) for way in (Way.LOCK, Way.PROCESS, Way.WAIT))
    seen_ns = NS_PER_US * sum(one.us for one in main_spent(samples))
    if wait_ns < LEAST_WAIT_RATIO * seen_ns:
        return None
    children = [child.thread for child in samples.children]
    threads = [thread for thread in samples.threads if not thread.main]
    teams = [(True, _members(children)), (False, _members(threads))]
    processes, members = max(teams, key=lambda team: sum(m.busy_ns for m in team[1]))
    if sum(member.busy_ns for member in members) < LEAST_WORK_RATIO * wait_ns:
        return None
    work = [one for member in members for one in member.work]
    cores = Cores.of(samples, children if processes else threads)
    return Crew(processes, members, wait_ns, places_of(work, cores, wait_ns))


def _members(threads: Sequence[SampledThread]) -> tuple[Member, ...]:
    found = [_member(thread) for thread in threads]
    return tuple(sorted((m for m in found if m.work), key=lambda m: -m.on_core_ns))


def _member(thread: SampledThread) -> Member:
    idle = [one for one in thread.spent if waits_for_work(one)]
    work = tuple(one for one in thread.spent if not waits_for_work(one))
    return Member(
        work,
        NS_PER_US * sum(one.on_core_us for one in work),
        NS_PER_US * sum(one.us for one in work),
        NS_PER_US * sum(one.us for one in idle),
        thread.queued_ns or 0,
    )
