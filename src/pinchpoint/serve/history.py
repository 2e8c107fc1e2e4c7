"""Runs of one program in order of time: what changed from one to the next, and was it predicted."""

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from posixpath import commonprefix

import numpy as np
from msgspec.structs import replace

from pinchpoint.compare.fix import FixOutcome, fix_outcome
from pinchpoint.compare.noise import noise
from pinchpoint.compare.over_time import SAME_RATIO
from pinchpoint.frozen import dataclass
from pinchpoint.importers.ranks.names import session_of
from pinchpoint.regex import regex
from pinchpoint.serve.listing import ListedRecording
from pinchpoint.serve.summary import Summary

ONE_PROGRAM_RATIO = 0.5  # of what takes most time, as compare asks of operations
_NUMBERS_RANKS = regex(r"[-_.]?(rank|worker|process|proc)?[-_. =]*$", re.IGNORECASE)
_Ranked = tuple[ListedRecording, Summary]


@dataclass(frozen=True)
class Listed:
    """A recording with what is known of it, and what changed since the one before."""

    recording: ListedRecording
    summary: Summary | None  # None: not read yet
    change_ratio: float | None = None  # of the step since the run before; None: not comparable
    sure: bool = False  # the change is more than steps differ by themselves, as compare says
    gone: tuple[str, ...] = ()  # findings of the run before that this one has not
    fix: FixOutcome | None = None  # where what went had a prediction


@dataclass(frozen=True)
class Program:
    """The runs of one program, newest first."""

    name: str
    runs: tuple[Listed, ...]

    @property
    def steps_ns(self) -> tuple[int | None, ...]:
        """Of the runs that can be compared with the newest one, oldest first.

        Of the ranks of a job only the slowest.
        """
        known = [run.summary for run in reversed(self.runs) if run.summary is not None]
        timed = [summary for summary in known if summary.step_ns is not None]
        return tuple(now.step_ns for now in timed if _comparable(timed[-1], now))


def programs(found: Sequence[tuple[ListedRecording, Summary | None]]) -> tuple[Program, ...]:
    """All recordings by program, the program with the newest run first.

    A program is a command line; of recordings without one, the folder that they are in. Times are
    only compared on one device and one clock.
    """
    by_name: dict[str, list[tuple[ListedRecording, Summary | None]]] = {}
    for recording, summary in found:
        by_name.setdefault(_program(recording, summary), []).append((recording, summary))
    return tuple(
        Program(name, _with_changes(sorted(runs, key=lambda r: (r[0].when_ns, r[0].name))))
        for name, runs in by_name.items()
    )


def _program(recording: ListedRecording, summary: Summary | None) -> str:
    if summary is not None and summary.program:
        return summary.program
    return recording.name.rpartition("/")[0]


def _with_changes(runs: list[tuple[ListedRecording, Summary | None]]) -> tuple[Listed, ...]:
    listed = [Listed(*runs[0])]
    listed += [_after(before[1], *now) for before, now in pairwise(runs)]
    return tuple(reversed(listed))


def _after(before: Summary | None, recording: ListedRecording, now: Summary | None) -> Listed:
    if before is None or now is None or not before.step_ns or not now.step_ns:
        return Listed(recording, now)
    if not _comparable(before, now):
        return Listed(recording, now)
    gone = tuple(id_ for id_ in before.findings if id_ not in now.findings)
    ratio = now.step_ns / before.step_ns - 1
    sure, outcome = _is_sure(before, now, ratio), _outcome(before, now, gone)
    if outcome is not None and not sure:
        outcome = replace(outcome, said="cannot tell")
    return Listed(recording, now, ratio, sure, gone, outcome)


def _is_sure(before: Summary, now: Summary, ratio: float) -> bool:
    """Whether ``compare`` would say so: steps as recorded and the step that is shown both tell."""
    if abs(ratio) < SAME_RATIO or before.step_ns is None:
        return False
    low, high = now.step_range_ns or (before.step_ns + 1, before.step_ns + 1)
    a, b = (np.array(side.steps_ns, np.int64) for side in (before, now))
    return not low <= before.step_ns <= high and noise(a, b).sure is True


def _comparable(before: Summary, now: Summary) -> bool:
    """Whether both are one program on one device and clock; not two ranks of one job.

    Where no command says so, they are one whose steps run the same as often: half of all that
    either does.
    """
    a, b = set(before.work), set(now.work)
    least = len(a | b)
    if _of_one_command(before, now):  # another batch size calls the same, another number of times
        a, b = ({called.partition(" × ")[2] for called in side} for side in (a, b))
        least = min(len(a), len(b))
    one_program = len(a & b) >= ONE_PROGRAM_RATIO * least
    where = [(s.device, s.clock, s.world_size, s.rank) for s in (before, now)]
    return one_program and where[0] == where[1]


_NO_COMMAND = "no command in them says so"


def _of_one_command(before: Summary, now: Summary) -> bool:
    return bool(before.program) and before.program == now.program


def _outcome(before: Summary, now: Summary, gone: tuple[str, ...]) -> FixOutcome | None:
    """What was predicted of the findings that went: of one, or of all of them."""
    wanted = gone[0] if len(gone) == 1 else "all" if set(gone) == set(before.findings) else None
    rung = next((r for r in before.rungs if r.id == wanted), None)
    if rung is None or before.step_ns is None or now.step_ns is None:
        return None
    outcome = fix_outcome(
        gone,
        before.step_ns,
        now.step_ns,
        now.step_range_ns,
        now.clock,
        (rung.step_ns, (rung.low_ns, rung.high_ns)),
    )
    return outcome if _of_one_command(before, now) else replace(outcome, doubt=_NO_COMMAND)


def by_job(
    found: Sequence[tuple[ListedRecording, Summary | None]],
) -> tuple[list[tuple[ListedRecording, Summary | None]], dict[str, list[ListedRecording]]]:
    """The same with the ranks of a job as one line, and who these are, by the name of the line.

    Ranks are recordings of one world whose names differ in what names the rank, or else all those
    of a folder that say different ranks of one world. A line is named as the folder that has no
    other job, else by what the names begin with. The job takes as long as its slowest rank.
    """
    alike: dict[tuple[str, int], list[_Ranked]] = defaultdict(list)
    for recording, summary in found:
        if summary is not None and summary.rank is not None and (summary.world_size or 0) > 1:
            key = session_of(recording.name), summary.world_size or 0
            alike[key].append((recording, summary))
    jobs = [same for same in alike.values() if _differ(same)]
    jobs += _of_folders([pair for same in alike.values() if not _differ(same) for pair in same])
    named = _by_name(jobs)
    taken = {recording.name for same in jobs for recording, _ in same}
    lines = [pair for pair in found if pair[0].name not in taken]
    lines += [_line(name, same) for name, same in named.items()]
    members = {
        name: sorted(same, key=lambda pair: pair[1].rank or 0) for name, same in named.items()
    }
    return lines, {name: [r for r, _ in same] for name, same in members.items()}


def _of_folders(left: list[_Ranked]) -> list[list[_Ranked]]:
    """Ranks whose names have nothing in common: those of one world in one folder."""
    folders: dict[tuple[str, int], list[_Ranked]] = defaultdict(list)
    for recording, summary in left:
        folder = recording.name.rpartition("/")[0]
        folders[folder, summary.world_size or 0].append((recording, summary))
    return [same for (folder, _), same in folders.items() if folder and _differ(same)]


def _differ(same: list[_Ranked]) -> bool:
    return len(same) > 1 and len({summary.rank for _, summary in same}) == len(same)


def _by_name(jobs: list[list[_Ranked]]) -> dict[str, list[_Ranked]]:
    begins = [commonprefix([recording.name for recording, _ in same]) for same in jobs]
    folders = [begin.rpartition("/")[0] for begin in begins]
    named: dict[str, list[_Ranked]] = {}
    for begin, folder, same in zip(begins, folders, jobs, strict=True):
        alone = folder and folders.count(folder) == 1
        name = folder if alone else _NUMBERS_RANKS.sub("", begin)
        named[name if name and name not in named else same[0][0].name] = same
    return named


def _line(name: str, same: list[_Ranked]) -> tuple[ListedRecording, Summary]:
    slowest = max((summary for _, summary in same), key=lambda s: s.step_ns or 0)
    newest = max(recording.when_ns for recording, _ in same)
    whole = sum(recording.bytes or 0 for recording, _ in same)
    return ListedRecording(name, f"{len(same)} ranks", newest, whole), slowest
