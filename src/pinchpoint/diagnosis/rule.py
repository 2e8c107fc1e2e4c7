"""What a rule is, what it may say, and how it says it.

A rule is one module in ``diagnosis/rules``. Its name with dashes is its id (``sync_in_loop.py`` is
``sync-in-loop``); its docstring is its page, with the headings in :data:`HEADINGS`. It declares

``NEEDS``     tables of the trace without which there is nothing to judge: ``("device_ops",)``
``RECORD``    what to record, where a need is met and yet not enough: one phrase for the reader
``PARENT``    optional id of the more general cause, which yields when this one is found
``GENERIC``   optional True: it fits nearly every slow host; specific causes are told before it
``PERIODIC``  optional True: the cause may show in some steps only, and the mean step tells
``RESIDUAL``  optional True: it names what no other finding explains, and yields to those that do
``check``     ``check(trace) -> Iterator[Finding]``; pure, no I/O, knows no other rule
``check_job`` optional: the same for all ranks of a job together, where one rank cannot tell

``check`` yields findings, or nothing (*clear*), or raises :class:`NotChecked`. It looks only at
what happened, never at names of files, scripts or hosts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from pinchpoint.analysis.replay import Change
from pinchpoint.trace import Trace

HEADINGS = ("What it looks for", "Why it matters", "How to fix it", "When to ignore it")

MATERIAL_STEP_RATIO = 0.03  # a cause worth less than this share of the step is no finding

_DEVICE = "CPU and device activity together: ProfilerActivity.CPU and ProfilerActivity.CUDA"
RECORD_FOR = {  # what to record for a table that is missing, whatever the rule
    "device_ops": _DEVICE,
    "api_calls": _DEVICE,
    "host_ops": _DEVICE,
}
MORE_STEPS = "the same over five steps or more"


@dataclass(frozen=True)
class Evidence:
    """One measured fact. ``at_ns`` and ``name`` say where the trace shows it."""

    what: str
    value: float | int | str
    unit: str
    at_ns: int | None = None
    name: str | None = None  # the event at ``at_ns``, as the trace spells it


@dataclass(frozen=True)
class Location:
    """Where in the user's program, as far as the trace knows."""

    file: str | None = None
    line: int | None = None
    function: str | None = None
    module: str | None = None  # nn.Module path or class
    operator: str | None = None

    def __str__(self) -> str:
        """``forward (model.py:41), Block`` as far as it is known; empty where nothing is."""
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        owner = f"{self.function} ({place})" if self.function and place else place or self.function
        return ", ".join(p for p in (owner, self.module) if p) or (self.operator or "")


@dataclass(frozen=True)
class Finding:
    """One cause with its evidence.

    ``changes`` are what the fix does to the recorded events; the engine replays them to predict
    the step after the fix. A rule that knows the consequence better than replay can (memory,
    a benchmark's false claim) leaves ``changes`` empty and gives ``saving_ns_per_step`` or
    ``consequence``.
    """

    summary: str  # one sentence; for the headline of the finding
    evidence: tuple[Evidence, ...]
    cost_ns_per_step: int | None  # time of a step that the cause explains
    fix: str  # imperative sentence
    confirm: str  # the command or look that proves it
    changes: tuple[Change, ...] = ()
    saving_ns_per_step: tuple[int, int] | None = None  # least and most, where replay does not apply
    saving_bytes: int | None = None  # of device memory at the peak, or lost in the recording
    location: Location | None = None
    hint: str | None = None  # a line or two of code
    consequence: str | None = None  # what it costs other than time: memory, wrong numbers
    confidence: Literal["high", "medium", "low"] = "high"


class NotChecked(Exception):
    """The rule cannot judge this trace: ``why``, and what to ``record`` so that it can."""

    def __init__(self, why: str, record: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.record = record


class Rule(Protocol):
    """The shape of a rule module."""

    NEEDS: tuple[str, ...]
    RECORD: str

    def check(self, trace: Trace) -> Iterator[Finding]:
        """Findings in this trace."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What one rule said about one trace: exactly one of four answers."""

    id: str
    answer: Literal["found", "clear", "not checked", "crashed"]
    findings: tuple[Finding, ...] = ()
    why: str = ""
    record: str = ""
