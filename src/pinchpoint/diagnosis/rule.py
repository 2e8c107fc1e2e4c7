"""What a rule is, and what it may say.

A rule is one module in a family folder of ``diagnosis/rules``. Its name with dashes is its id
(``sync_in_loop.py`` is ``sync-in-loop``); its docstring is its page, with the headings in
:data:`HEADINGS`, and what follows from its declaration is added to it. It has

``RULE``      its declaration, a :class:`Rule`: all that others may know about it
``check``     ``check(trace) -> Iterator[Found | Small]``; pure, no I/O, knows no other rule
``check_job`` where ``RULE.looks_at`` is "job": the same for all ranks of a job together
``check_run`` the same for a run of which nothing but samples was taken, where these can show it

``check`` yields findings, or :class:`Small` where it sees its cause and nothing but its size is
lacking (*smaller*), or nothing (*clear*), or raises :class:`NotChecked`. It looks only at what
happened, never at names of files, scripts or hosts.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum, auto
from typing import Literal, TypedDict

import msgspec

from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace

HEADINGS = ("What it looks for", "Why it matters", "How to fix it", "When to ignore it")
RECORDED = "What has to be recorded"  # the last heading of a page, made from its declaration

# A cause worth less than this share of the step is no finding: a smaller gain is within the error
# of the step that it is predicted from (docs/accuracy.md), and of a handful of runs.
MATERIAL_STEP_RATIO = 0.03
# Of the step (the run, the peak): what takes less was not seen. Three digits show no smaller part,
# and nearly every program does a little of nearly everything.
SEEN_RATIO = 0.005

# How to prove a fix where no knob of ``pinchpoint try`` makes it, nor anything closer at hand.
ANY_PROGRAM = 'pinchpoint bench ab -- "python train.py" "python train_fixed.py"'


class About(Enum):
    """What a cause costs or is about, by which commands choose the rules that they ask."""

    TIME = auto()
    MEMORY = auto()  # ``pinchpoint memory`` asks it
    COMMUNICATION = auto()  # in the collectives: a rank's gain is not its own time alone
    KERNEL = auto()  # inside kernels that Nsight Compute profiled
    BENCHMARK = auto()  # figures that a measurement gets wrong


class Framework(Enum):
    """Whose program a recording is of, as far as its names say."""

    TORCH = auto()  # on a device that has ``torch.cuda``, or one that is not known
    TORCH_WITHOUT_CUDA = auto()
    CUPY = auto()
    OTHER = auto()


class Advice(TypedDict, total=False):
    """What a finding says otherwise to programs of a framework; all else stays as it is."""

    fix: str
    hint: str | None
    confirm: str


NO_HINT: Mapping[Framework, Advice] = {Framework.OTHER: {"hint": None}}
NO_TORCH_CUDA: Mapping[Framework, Advice] = {
    Framework.OTHER: {"hint": None},
    Framework.TORCH_WITHOUT_CUDA: {"hint": None},
}
NO_KNOB: Mapping[Framework, Advice] = {Framework.OTHER: {"hint": None, "confirm": ANY_PROGRAM}}


@dataclass(frozen=True)
class Rule:
    """All that others may know about a rule."""

    needs: tuple[str, ...]  # tables of the trace without which there is nothing to judge
    record: Record  # what to record, where a need is met and yet not enough
    about: About = About.TIME
    # job: it has ``check_job``, which decides; run: asked only where the whole run was looked at;
    # run alone: only where nothing else of it was recorded.
    looks_at: Literal["trace", "job", "run", "run alone"] = "trace"
    parent: str | None = None  # id of the more general cause, which yields when this one is found
    generic: bool = False  # it fits nearly every slow host; specific causes are told before it
    periodic: bool = False  # it may show in some steps only, and the mean step tells
    residual: bool = False  # it names what no other finding explains, and yields to those that do
    fix_known: bool = False  # of a residual one: it says what to do at the place that it names
    removes_host_work: bool = False  # its fix takes work of the host away, at a place it names
    explains_full_memory: bool = False  # told first where a request for memory failed
    leak: str | None = None  # the kind of :class:`~pinchpoint.analysis.memory.growth.Leak` it names
    confirm: str = ANY_PROGRAM  # what would prove a fix, where a finding does not say its own
    knobs: tuple[str, ...] = ()  # of ``pinchpoint try``, that may fix it; the likeliest first
    advice: Mapping[Framework, Advice] = field(default_factory=dict)  # where PyTorch's is no use


class NotChecked(Exception):
    """The rule cannot judge this trace: ``why``, and what to ``record`` so that it can."""

    def __init__(self, why: str, record: Record | None = None, *, fits: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.fits = fits  # what was recorded fits the cause: "nothing" would be wrong
        self.record = record  # None: what the rule declares


@dataclass(frozen=True)
class Outcome:
    """What one rule said about one trace: exactly one of seven answers.

    What a rule sees is never *clear*: it is *smaller* where the rule says so or the engine drops
    it for its size, and *covered* where the engine drops it for others. *Not applicable* is a cause
    on a device of a program that has none.
    """

    id: str
    answer: Literal[
        "found", "clear", "smaller", "covered", "not checked", "not applicable", "crashed"
    ]
    findings: tuple[Found, ...] = ()
    why: str = ""
    record: str = ""
    needs: Need = Need.ANOTHER
    fits: bool = False  # not checked, though what was recorded fits the cause
    covered_by: tuple[str, ...] = ()  # ids of the findings that explain the same time
    step_ratio: float | None = None  # of the step, of what is smaller, where that is known

    @property
    def nothing_found(self) -> bool:
        """Whether its rule did not see the cause, or saw it too small to call it found."""
        return self.answer == "clear" or (self.answer == "smaller" and not self.findings)


# ------------------------------------------------------------------------------------------------
# Which framework a recording shows, and advice in its words.


_SIGNS_OF_TORCH = ("aten::", "at::native", "torch")  # operators; kernels; functions and ranges
_HAS_TORCH_CUDA = ("nvidia", "amd")  # ROCm builds keep the name


@once_per_trace
def framework_of(trace: Trace) -> Framework:
    """By the names in the recording; memory snapshots are PyTorch's, and have no names."""
    recorded = any(table is not None and len(table) for table in (trace.host_ops, trace.device_ops))
    if not recorded or any(sign in name for name in trace.names for sign in _SIGNS_OF_TORCH):
        vendors = {device.vendor for device in trace.devices if device.vendor}
        cuda = not vendors or not vendors.isdisjoint(_HAS_TORCH_CUDA)
        return Framework.TORCH if cuda else Framework.TORCH_WITHOUT_CUDA
    if any(name.startswith("cupy_") for name in trace.names):
        return Framework.CUPY
    return Framework.OTHER


def shows_torch(trace: Trace) -> bool:
    """Whether options of PyTorch's profiler are of use to the program."""
    return framework_of(trace) in (Framework.TORCH, Framework.TORCH_WITHOUT_CUDA)


def in_program(framework: Framework, rule: Rule, found: Found) -> Found:
    """The finding with the advice that its rule has for a framework."""
    advice = rule.advice.get(framework)
    if advice is None and framework is Framework.CUPY:
        advice = rule.advice.get(Framework.OTHER)
    return msgspec.structs.replace(found, **advice) if advice else found
