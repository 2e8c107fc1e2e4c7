"""The steps of a process as its run folder has them: timed ones, and the run's in short."""

import msgspec

from pinchpoint.run_folder.numbers import Count, Ns


class RunSteps(msgspec.Struct, frozen=True, kw_only=True):
    """All ordinary steps of the run, as the host saw them."""

    p50: Ns | None = None
    p90: Ns | None = None
    p95: Ns | None = None
    p99: Ns | None = None
    count: Count = 0
    total_ns: Ns = 0
    least: Ns | None = None
    most: Ns | None = None
    wait_total_ns: Ns = 0


# Medians of steps before and after a recording that differ by more are of two states: one busy
# program beside two threads leaves them 1.5 of two cores, and so makes each step a third longer.
APART_RATIO = 4 / 3
MANY_TIMES = (
    10  # as many steps in the run as were timed: the tenth that is longer is not just these
)

# Of the timed steps, that are shorter than the middle one of more others: chance leaves so few on
# that side once in 2000 times where 22 were timed, once in 90 where 10 were.
FEW_SHORTER_RATIO = 1 / 6
FEWEST_TIMED = 10  # of fewer, chance leaves none there too often


FEWEST_TIMES = 2  # as many steps in the run: with those beside the recording in it, half are others
SHORTER_RATIO = 1.1  # two windows of one program differ by less
FAR_RATIO = 3.0  # of the middle one: steps that vary by themselves stay below it


class LaunchNote(msgspec.Struct, frozen=True, kw_only=True):
    """Host time of one small launch before the profiler first ran, and after a recording."""

    before: Ns | None = None
    after: Ns | None = None
    why: str | None = None  # one of them is not known
    unloaded_steps: Count = 0  # the first of before_ns, timed before the profiler first ran

    @property
    def more_ns(self) -> int | None:
        """What each costs more since; None: not known."""
        if self.before is None or self.after is None:
            return None
        return max(self.after - self.before, 0)


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a process: each unprofiled one around the recording, and the run in short."""

    by: str | None = None  # optimizer, loader, module, round, graph, annotation, call, loop
    place: tuple[str, Count, str] | None = None  # file, line, function of what comes round (loop)
    count: Count = 0
    steady: bool | None = None
    clock: str = "host"  # or device
    before_ns: tuple[Ns, ...] = ()
    after_ns: tuple[Ns, ...] = ()
    wait_ns: tuple[Ns, ...] = ()  # for the batch of the same steps
    batches_per_step: float | None = None
    warm_unix_ns: Ns | None = None  # when the third step began; null: it never did
    page_faults_per_step: float | None = None  # of undisturbed ones; null: not known
    kernel_ns_per_step: float | None = None  # time of all threads in the kernel
    user_ns_per_step: float | None = None  # and outside of it
    cost_ns: Ns | None = None  # by which recording made the run longer; None: no other steps
    launch_ns: LaunchNote = LaunchNote()
    run: RunSteps = RunSteps()

    @property
    def unprofiled_ns(self) -> tuple[int, ...]:
        """Before and after the recording, those of them that stand for the run.

        Where nine of ten steps of a long run are shorter than the middle one of these, or nearly
        all of these are longer than the middle one of the others, a recording left something
        behind for a while, or others had the machine: they count as long as the run's on average,
        or where that holds far longer steps, the usual ones as long as the run's usual one. Where
        nearly all of these are shorter than the middle one of the others, they lived on what did
        not last, as batches that were ready: they, too, count as long as the run's usual one.
        """
        timed = self._timed
        return self._usual_as_of_run(timed) if self.shorter_than_run else self._as_of_run(timed)

    @property
    def unprofiled_wait_ns(self) -> tuple[int, ...]:
        """Of the same steps."""
        waits_ns, run = self.wait_ns[self._standing], self.run
        if self.shorter_than_run:
            return (run.wait_total_ns // run.count,) * len(waits_ns)
        return self._as_of_run(waits_ns)

    @property
    def _timed(self) -> tuple[int, ...]:
        return (self.before_ns + self.after_ns)[self._standing]

    def _as_of_run(self, ns: tuple[int, ...]) -> tuple[int, ...]:
        timed, run = self._timed, self.run
        if not timed or not run.count or not self._longer_than_run:
            return ns
        mean_ns = run.total_ns / run.count
        if mean_ns >= _middle(timed):
            return self._usual_as_of_run(ns) if ns == timed else ns
        ratio = mean_ns * len(timed) / sum(timed)
        return tuple(round(ratio * one) for one in ns)

    def _usual_as_of_run(self, timed: tuple[int, ...]) -> tuple[int, ...]:
        """The same with those that are not far longer put to the middle of the run's, and none
        shorter than the shortest one was."""
        usual_ns, least_ns = _middle(timed), min(timed)
        ratio = (self.run.p50 or usual_ns) / usual_ns
        return tuple(
            one if one > FAR_RATIO * usual_ns else max(round(ratio * one), least_ns)
            for one in timed
        )

    @property
    def _longer_than_run(self) -> bool:
        """Whether the timed steps are longer than those of the rest of the run."""
        timed, run = self._timed, self.run
        if run.p50 is None or run.p90 is None or run.count <= len(timed):
            return False
        if run.count >= MANY_TIMES * len(timed) and _middle(timed) > run.p90:
            return True
        shorter = sum(one < run.p50 for one in timed)
        return len(timed) >= FEWEST_TIMED and shorter <= FEW_SHORTER_RATIO * len(timed)

    @property
    def shorter_than_run(self) -> bool:
        """Whether the timed steps are shorter than those of the rest of the run, by more than both
        spread. Those after the recording are asked: what it left behind, all later ones have."""
        timed, run = self.after_ns, self.run
        if len(timed) < FEWEST_TIMED or run.p50 is None:
            return False
        if run.count < FEWEST_TIMES * len(self._timed):
            return False
        if _apart(_middle(self._timed), run.p50) <= SHORTER_RATIO:
            return False
        longer = sum(one > run.p50 for one in timed)
        return longer <= FEW_SHORTER_RATIO * len(timed)

    @property
    def quicker_than_run(self) -> tuple[int, int] | None:
        """The middle one as timed and the run's steps, where those timed are shorter."""
        return (_middle(self._timed), self.run.count) if self.shorter_than_run else None

    @property
    def unloaded_steps(self) -> int:
        """The first of ``unprofiled_ns`` that came before the profiler first ran."""
        if self.shorter_than_run:
            return 0
        first = min(self.launch_ns.unloaded_steps, len(self.before_ns))
        return 0 if self._standing.start else first

    @property
    def _standing(self) -> slice:
        """All, or where the two sides differ and the run had more steps, the side that is nearer to
        its median: others took the cores while the other one was timed, or it was a phase."""
        first, usual_ns = len(self.before_ns), self.run.p50
        many = self.run.count > first + len(self.after_ns)
        if not self.before_ns or not self.after_ns or not usual_ns or not many:
            return slice(None)
        before_ns, after_ns = _middle(self.before_ns), _middle(self.after_ns)
        if _apart(before_ns, after_ns) <= APART_RATIO:
            return slice(None)
        nearer = _apart(before_ns, usual_ns) <= _apart(after_ns, usual_ns)
        return slice(None, first) if nearer else slice(first, None)


def _middle(ns: tuple[int, ...]) -> int:
    return sorted(ns)[len(ns) // 2]


def _apart(a_ns: float, b_ns: float) -> float:
    return max(a_ns, b_ns) / max(min(a_ns, b_ns), 1)
