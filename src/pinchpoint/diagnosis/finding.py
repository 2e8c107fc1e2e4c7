"""What a rule finds: declared once, for rules, the engine and the documents alike.

``Finding`` is what documents show. A rule yields ``Found``: the same, with what only the engine
needs. ``Found.shown`` is the one way from it to a document. Of what it sees and finds too small a
rule yields ``Small``.
"""

from collections.abc import Iterable, Iterator
from math import floor
from typing import Any, Literal

import msgspec

from pinchpoint.analysis.replay import Change
from pinchpoint.diagnosis.record import Need


class Evidence(msgspec.Struct, frozen=True):
    """One measured fact."""

    what: str  # what was measured
    value: float | int | str  # in the unit beside it
    unit: str  # ns, bytes, ratio, count, or words
    at_ns: int | None = None  # where in the recording, if at one place
    name: str | None = None  # of the event there, as the recording spells it


class Location(msgspec.Struct, frozen=True):
    """Where in the user's program."""

    file: str | None = None  # path as recorded
    line: int | None = None  # of the file
    function: str | None = None  # that the line is in
    module: str | None = None  # of the model, such as Linear_7
    operator: str | None = None  # of the framework, such as aten::mm

    def __str__(self) -> str:
        """``forward (model.py:41), Block`` as far as it is known; empty where nothing is."""
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        owner = f"{self.function} ({place})" if self.function and place else place or self.function
        return ", ".join(p for p in (owner, self.module) if p) or (self.operator or "")

    @property
    def short(self) -> str:
        """``model.py:41``, else what the place is in; empty where nothing is known."""
        if self.file and self.line:
            name = self.file.replace("\\", "/").rpartition("/")[2]
            return f"{name}:{self.line}"
        return self.module or self.function or self.operator or ""


class RowsItem(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a table of the trace that a finding is made of: what its fix would change.

    Positions as ``pinchpoint sql`` and the timeline count them; the first ones, of ``count``.
    """

    table: str  # device_ops, host_ops, api_calls
    rows: tuple[int, ...]  # positions in that table
    count: int  # of all of them, listed or not


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of the user's program, read where the report was made, and an edit that fits them."""

    file: str  # path, below the folder that the program ran in or the git tree
    first_line: int  # number of the first of the lines
    lines: tuple[str, ...]  # as they are
    edited: tuple[str, ...] | None = None  # the same lines with the fix; null: none is known to fit
    newer: bool = False  # the file was written after the recording: its lines may be others now


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One cause, what it costs, what fixing it gives."""

    id: str = ""  # of the rule: pinchpoint explain ID
    summary: str  # one sentence
    evidence: tuple[Evidence, ...]  # what it rests on
    cost_ns_per_step: int | None = None  # what the cause takes now
    location: Location | None = None  # null: the recording does not say
    predicted_step_ns: int | None = None  # the step with this fixed
    predicted_range_ns: tuple[int, int] | None = None  # least and most
    given: tuple[str, ...] = ()  # findings whose fixes the prediction includes: it pays after them
    given_step_ns: int | None = None  # the step with those fixed, that this gain counts from
    hidden_ns: int | None = None  # of the cost: the device works meanwhile, so no fix wins it
    saving_bytes: int | None = None  # device memory at the peak, or lost in the recording
    fix: str = ""  # one sentence
    hint: str | None = None  # code that shows it
    confirm: str = ""  # the command that would prove it
    consequence: str | None = None  # what it costs besides time
    confidence: Literal["high", "medium", "low"] = "high"  # high, medium, low
    code: Code | None = None  # null: the source is not at hand
    rows: tuple[RowsItem, ...] = ()  # empty where no rows say it all: memory, stretches of time


class Found(Finding, frozen=True, kw_only=True):
    """A finding as its rule yields it.

    ``changes`` are what the fix does to the recorded events; the engine replays them to predict
    the step after the fix. Where one of several ways to fix it wins more than the others,
    ``at_best`` is that one, and the middle of both is said. A rule that knows the consequence
    better than replay can (memory, a benchmark's false claim) leaves ``changes`` empty and gives
    ``saving_ns_per_step`` or ``consequence``.
    """

    changes: tuple[Change, ...] = ()
    at_best: tuple[Change, ...] = ()  # of the fix that wins most, where ``fix`` names several
    saving_ns_per_step: tuple[int, int] | None = None  # least and most, where replay does not apply
    likely_saving_ns: int | None = None  # of that, what is said in the middle; None: its middle
    run_ratio: float | None = None  # of the whole run, where no step that was recorded shows it
    beside_steps: bool = False  # its time is none of a step's: before the first or after the last
    once_a_step: bool = False  # a wait that many programs need once, and that alone costs nothing
    leaves_ns_per_step: int | None = None  # device work beyond that saving, if the fix takes some
    # What it takes in each judged step of its recording, where no other rank has a part in that.
    in_steps_ns: tuple[int, ...] = ()
    in_collectives: bool = False  # its time is that of standing in collectives, for other ranks
    # Of a finding about collectives what the rank itself does for them, and what goes with them.
    beside_collectives_ns: int = 0

    def shown(self, **known: Any) -> Finding:
        """What a document shows of it, with what is known by then."""
        return Finding(**shared(self) | known)


class Small(msgspec.Struct, frozen=True):
    """The cause is there, by all the evidence that its rule asks for, and too small to be found."""

    ratio: float  # what it takes, or a fix would win at most; 0 to 1
    least_ratio: float  # from which on its rule tells it
    of: str = "the step"  # what both are shares of

    @property
    def step_ratio(self) -> float | None:
        """The share of the step; None where it is one of something else."""
        return self.ratio if self.of == "the step" else None

    @property
    def why(self) -> str:
        """``smaller than 5 % of the step: 3.6 %``, rounded down to stay below."""
        tenths = floor(1000 * self.ratio)
        share = f"{tenths / 10:.1f} %" if tenths else "under 0.1 %"
        return f"smaller than {100 * self.least_ratio:.3g} % of {self.of}: {share}"


def at_most(count: int, said: Iterable[Found | Small | None]) -> Iterator[Found | Small]:
    """So many findings, the first, and whatever was too small to be one."""
    told = [one for one in said if one is not None]
    yield from [one for one in told if isinstance(one, Found)][:count]
    yield from (one for one in told if isinstance(one, Small))


class Unanswered(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that this recording cannot show, why, and what to record instead."""

    id: str  # of the rule
    why: str  # what is missing
    record: str = ""  # how to get it
    needs: Need = Need.ANOTHER  # the same in a few words, by which causes are counted
    fits: bool = False  # what was recorded fits the cause, and does not decide it


class NotShown(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that was found and is no finding: too small, or explained by another one."""

    id: str  # of the rule
    why: str  # one phrase
    covered_by: tuple[str, ...] = ()  # findings that explain the same time; empty: it is small
    step_ratio: float | None = None  # of the step, that a small one takes; null: not known, no step


def shared(finding: Finding) -> dict[str, Any]:
    """The fields of every finding, by name: to make another kind of finding from."""
    return {name: getattr(finding, name) for name in Finding.__struct_fields__}
