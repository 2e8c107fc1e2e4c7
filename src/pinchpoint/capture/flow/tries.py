"""Factorisations that fail and are tried again, with more on the diagonal.

A try has failed where nobody reads its factors, while its ``info`` is read, and where the same
place factors the same matrix again later in the step, of which the factors are read. It is the same
matrix where both go back, by sums and copies alone, to one that this step computed: candidates that
are turned down one by one have nothing of that kind in common, and of a check nothing follows.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pinchpoint.capture.flow.operations import Operation
from pinchpoint.capture.flow.repeats import CONSTANTS, MAKES_NOTHING
from pinchpoint.capture.flow.results import read_or_kept
from pinchpoint.capture.flow.storages import Storage
from pinchpoint.frozen import dataclass

# Whose last result says whether it failed, and how many results they have.
_RESULTS = {
    "aten::linalg_cholesky_ex": 2,
    "aten::linalg_inv_ex": 2,
    "aten::linalg_lu_factor_ex": 3,
    "aten::linalg_ldl_factor_ex": 3,
    "aten::_linalg_solve_ex": 4,
}
_COPIES = ("aten::clone", "aten::_to_copy")
_SUMS = ("aten::add", "aten::sub", *_COPIES)
_DIAGONALS = ("aten::eye", "aten::diag_embed", *CONSTANTS, *MAKES_NOTHING)

Site = tuple[int, str, Any]  # stack, name and shapes


@dataclass(frozen=True)
class Tries:
    """Of one place in one step, by their places among its operations."""

    tries: tuple[int, ...]  # all, those that succeed included
    failed: tuple[int, ...]
    others: tuple[int, ...]  # what is computed as often, for the tries alone or from their info
    others_failed: int  # of these, for those that failed


def tries_again(
    steps: Sequence[Sequence[Operation]], storages: Sequence[Storage]
) -> list[dict[Site, Tries]]:
    """For each step the places at which factorisations fail and are tried again."""
    used = read_or_kept(steps, storages)
    return [_Step(step, storages, used).found() for step in steps]


class _Step:
    def __init__(
        self, operations: Sequence[Operation], storages: Sequence[Storage], used: frozenset[int]
    ) -> None:
        self.operations, self.storages, self.used = operations, storages, used
        self.makers = {number: one for one in operations for number in one.makes}

    def found(self) -> dict[Site, Tries]:
        """By place; where none fails, nothing."""
        by_site: dict[Site, list[int]] = defaultdict(list)
        for at, one in enumerate(self.operations):
            if len(one.makes) == _RESULTS.get(one.kind.name):
                by_site[_site(one)].append(at)
        told = {}
        for site, tries in by_site.items():
            failed = tuple(at for n, at in enumerate(tries) if self._again(at, tries[n + 1 :]))
            if failed:
                told[site] = self._with_others(tuple(tries), failed)
        return told

    def _again(self, at: int, later: Sequence[int]) -> bool:
        """Whether one fails, and a later one of the same matrix does not."""
        *factors, info = self.operations[at].makes
        if info not in self.used or not self.used.isdisjoint(factors):
            return False
        mine = self._from(at)
        return any(
            other
            for other in later
            if not self.used.isdisjoint(self.operations[other].makes[:-1])
            and any(self._stays(n, at, other) for n in mine & self._from(other))
        )

    def _from(self, at: int) -> set[int]:
        """What the matrix of a try goes back to by sums and copies, computed in this step."""
        todo, found = [self.operations[at].reads[0][0]], set[int]()
        while todo:
            number = todo.pop()
            maker = self.makers.get(number)
            if number in found or maker is None:
                continue
            found.add(number)
            if maker.kind.name in _SUMS:
                todo += _as_large(maker)
        return {number for number in found if self._is_computed(number)}

    def _is_computed(self, number: int) -> bool:
        """Whether it is more than a diagonal, or something from outside, element by element."""
        maker = self.makers.get(number)
        if maker is None or maker.kind.name.startswith(_DIAGONALS):
            return False
        if maker.kind.pointwise or maker.kind.name in _COPIES:
            return any(self._is_computed(n) for n in _as_large(maker) if n != number)
        return True

    def _stays(self, number: int, at: int, other: int) -> bool:
        """Whether nothing but a sum writes all of it between two tries."""
        between = self.operations[at:other]
        return not any(
            n == number and whole and one.kind.name not in ("aten::add_", "aten::sub_")
            for one in between
            for n, whole in one.writes
        )

    def _with_others(self, tries: tuple[int, ...], failed: tuple[int, ...]) -> Tries:
        in_vain = self._for_alone(set(failed))
        infos = {self.operations[at].makes[-1]: at in failed for at in tries}
        told = self._told_by(infos)
        in_vain |= {at for at, vain in told.items() if vain}
        sites = {_site(self.operations[at]) for at in in_vain | set(told)}
        all_of_them = (at for at, one in enumerate(self.operations) if _site(one) in sites)
        others = tuple(at for at in all_of_them if at not in tries)
        return Tries(tries, failed, others, len(in_vain))

    def _for_alone(self, failed: set[int]) -> set[int]:
        """What nothing but failed tries needs."""
        readers: dict[int, list[int]] = defaultdict(list)
        for at, one in enumerate(self.operations):
            for number, _ in () if one.view else one.reads:
                readers[number].append(at)
        found: set[int] = set()
        for at in range(max(failed) - 1, -1, -1):
            one = self.operations[at]
            by = [reader for number in one.makes for reader in readers[number]]
            kept = one.writes or one.root or any(_is_kept(self.storages[n]) for n in one.makes)
            if by and not kept and all(reader in failed or reader in found for reader in by):
                found.add(at)
        return found

    def _told_by(self, infos: Mapping[int, bool]) -> dict[int, bool]:
        """What reads nothing but ``info`` and what comes of that; whether of a failed try."""
        of, found = dict(infos), {}
        for at, one in enumerate(self.operations):
            numbers = [number for number, _ in one.reads]
            if one.view or one.writes or not numbers or any(n not in of for n in numbers):
                continue
            found[at] = all(of[n] for n in numbers)
            of.update(dict.fromkeys(one.makes, found[at]))
        return found


def in_all(found: Sequence[Mapping[Site, Tries]]) -> Iterator[tuple[Site, list[Tries]]]:
    """Places at which tries fail in all of these steps."""
    for site in found[-1]:
        if all(site in one for one in found):
            yield site, [one[site] for one in found]


def left_ratio(some: Sequence[Tries]) -> float:
    """Of the operations of a place what stays where no try fails."""
    of = sum(len(one.tries) + len(one.others) for one in some)
    return 1 - sum(len(one.failed) + one.others_failed for one in some) / of


def _site(one: Operation) -> Site:
    return one.stack, one.kind.name, one.shapes


def _as_large(one: Operation) -> list[int]:
    return [number for number, lies in one.reads if lies[1] == one.shape]


def _is_kept(one: Storage) -> bool:
    return one.alive or one.escaped or one.after_backward
