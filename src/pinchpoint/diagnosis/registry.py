"""Every rule by its id, found by listing the folder, and the page of each."""

import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from inspect import getdoc
from textwrap import fill
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

import pinchpoint.diagnosis.rules as home
from pinchpoint.analysis.host.on_cpu import compiled_for_cpu, computes_on_cpu
from pinchpoint.analysis.mean.whole_run import only_samples, uses_framework
from pinchpoint.diagnosis.engines import in_engine
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, ON_NVIDIA, Record
from pinchpoint.diagnosis.rule import (
    RECORDED,
    SEEN_RATIO,
    Framework,
    NotChecked,
    Outcome,
    Rule,
    framework_of,
    in_program,
)
from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.ranks.job import Job


@dataclass(frozen=True)
class Known:
    """A rule, its declaration and what it does."""

    id: str
    rule: Rule
    check: Callable[[Trace], Iterator[Found | Small]]
    check_job: Callable[["Job"], Iterator[Found | Small]] | None = None
    check_run: Callable[[Trace], Iterator[Found | Small]] | None = None
    family: str = ""  # the folder that it is in


@cache
def rules() -> dict[str, Known]:
    """All rules, in alphabetical order of id."""
    return {id_: _known(id_, import_module(path)) for id_, path in _paths().items()}


def _known(id_: str, module: ModuleType) -> Known:
    job = module.check_job if module.RULE.looks_at == "job" else None
    family = module.__name__.split(".")[-2]
    return Known(id_, module.RULE, module.check, job, getattr(module, "check_run", None), family)


@cache
def _paths() -> dict[str, str]:
    """The module of each rule; names that begin with an underscore are what rules share."""
    found = {
        module.name.replace("_", "-"): f"{home.__name__}.{family.name}.{module.name}"
        for family in pkgutil.iter_modules(home.__path__)
        for module in pkgutil.iter_modules([f"{p}/{family.name}" for p in home.__path__])
        if not module.name.startswith("_")
    }
    return dict(sorted(found.items()))


def rule_ids() -> tuple[str, ...]:
    """The ids of all rules, in alphabetical order; imports none of them."""
    return tuple(_paths())


def page(rule_id: str) -> str:
    """The rule's page: one sentence, the headings of ``rule.HEADINGS``, and what makes it *not
    checked* below ``rule.RECORDED``.

    Raises UsageError, with the nearest names, if there is no such rule.
    """
    path = _paths().get(rule_id)
    if path is None:
        close = related(rule_id)
        hint = f"did you mean: {', '.join(close)}" if close else "pinchpoint explain lists them"
        raise UsageError(f"there is no rule {rule_id!r}", hint=hint)
    module = import_module(path)
    return f"{getdoc(module) or ''}\n\n## {RECORDED}\n{_to_record(module.RULE)}"


def _to_record(rule: Rule) -> str:
    """What a recording must have for the rule to judge it, and how to get it."""
    needs = [_NEEDS.get(need, need.replace("_", " ")) for need in rule.needs]
    listed = f"At least {' and '.join(needs)}. " if needs else ""
    words = f"{listed}Where what it looks for was not recorded, the answer is *not checked*."
    return fill(f"{words} What shows it, as a rule: {rule.record.phrase}", PAGE_COLUMNS)


PAGE_COLUMNS = 100  # of a page, as of the source that it stands in
_NEEDS = {
    "host_ops": "what the host ran",
    "api_calls": "calls of the runtime",
    "device_ops": "what the device ran",
    "counters": "samples of the device over time",
    "kernel_counters": "hardware counters of kernels",
}


def related(text: str) -> list[str]:
    """At most three ids that the text is a misspelling of, or shares a word with."""
    words = {word for word in text.lower().replace("_", "-").split("-") if len(word) > 2}
    sharing = [r for r in rule_ids() if words & set(r.split("-"))]
    sharing.sort(key=lambda r: r.split("-")[0] not in words)
    from difflib import get_close_matches

    close = get_close_matches(text.lower(), rule_ids(), n=3, cutoff=0.75)
    return list(dict.fromkeys([*close, *sharing]))[:3]


def headline(rule_id: str) -> str:
    """The first sentence of a rule's page."""
    return page(rule_id).partition("\n")[0]


# ------------------------------------------------------------------------------------------------
# Asks one rule about one trace, or about one job.


# What to record for a table that is missing, whatever the rule.
_ON_A_DEVICE = {"device_ops", "api_calls", "kernel_counters"}
RECORD_FOR = dict.fromkeys(("device_ops", "api_calls", "host_ops"), CPU_AND_DEVICE)


def is_about(rule: Rule, trace: Trace) -> bool:
    """Whether a rule about whole runs has one to look at; others are about every recording."""
    if rule.looks_at not in ("run", "run alone"):
        return True
    sampled = trace.run is not None and trace.run.samples is not None
    return sampled and only_samples(trace) == (rule.looks_at == "run alone")


def ask(known: Known, trace: Trace) -> Outcome:
    """One rule's answer; a rule that breaks costs only its own answer."""
    framework = framework_of(trace)
    if not is_about(known.rule, trace):
        return _not_checked(known, NotChecked("no whole run was looked at"), framework)
    if only_samples(trace) and known.rule.needs:
        return _of_samples(known, trace, framework)
    lacking = _missing(trace, known)
    on_cpu = computes_on_cpu(trace) or compiled_for_cpu(trace)
    if lacking is not None and _ON_A_DEVICE & set(known.rule.needs) and on_cpu:
        return Outcome(known.id, "not applicable", why="the program runs on the CPU alone")
    if lacking is not None:
        return _not_checked(known, lacking, framework)
    said = answer(known, lambda: known.check(trace), framework)
    if not said.findings:  # as of nearly all rules
        return said
    advised = tuple(
        in_engine(trace, known.rule, in_program(framework, known.rule, found))
        for found in said.findings
    )
    return replace(said, findings=advised)


def _of_samples(known: Known, trace: Trace, framework: Framework) -> Outcome:
    """What a rule says of a run of which nothing but samples was taken."""
    if known.check_run is not None:
        check = known.check_run
        return answer(known, lambda: check(trace), framework)
    if uses_framework(trace):
        return _not_checked(known, NotChecked("no work of torch or jax was recorded"), framework)
    return Outcome(known.id, "not applicable", why="the program gives torch and jax nothing to do")


def answer(
    known: Known,
    check: Callable[[], Iterable[Found | Small]],
    framework: Framework = Framework.TORCH,
) -> Outcome:
    """What a check of a rule says; advice is PyTorch's."""
    try:
        said = tuple(check())
    except NotChecked as reason:
        return _not_checked(known, reason, framework)
    except Exception as error:  # a rule is judged by its own tests; the report must survive it
        return Outcome(known.id, "crashed", why=f"{type(error).__name__}: {error}")
    findings = tuple(_to_confirm(one, known.rule) for one in said if isinstance(one, Found))
    seen = [one for one in said if isinstance(one, Small) and one.ratio >= SEEN_RATIO]
    if findings or not seen:
        return Outcome(known.id, "found" if findings else "clear", findings)
    most = max(seen, key=lambda one: one.ratio)
    return Outcome(known.id, "smaller", why=most.why, step_ratio=most.step_ratio)


def _to_confirm(found: Found, rule: Rule) -> Found:
    return found if found.confirm else msgspec.structs.replace(found, confirm=rule.confirm)


def _not_checked(known: Known, reason: NotChecked, framework: Framework) -> Outcome:
    record = reason.record or known.rule.record
    if framework not in (Framework.TORCH, Framework.TORCH_WITHOUT_CUDA):
        record = record.elsewhere or record
    return Outcome(
        known.id,
        "not checked",
        why=reason.why,
        record=record.phrase,
        needs=record.need,
        fits=reason.fits,
    )


def _missing(trace: Trace, known: Known) -> NotChecked | None:
    """Why a table is absent or empty that the rule needs; None if all are there."""
    need = next((need for need in known.rule.needs if _lacks(trace, need)), None)
    if need is None:
        return None
    if need == "kernel_counters" and not may_be_counted(trace):
        return NotChecked("hardware counters are read for devices of NVIDIA only", ON_NVIDIA)
    if need == "kernel_counters" and not _lacks(trace, "host_ops") and _lacks(trace, "device_ops"):
        need = "device_ops"  # first of all there has to be a kernel
    record: Record | None = RECORD_FOR.get(need)
    return NotChecked(f"the recording has no {need.replace('_', ' ')}", record)


def _lacks(trace: Trace, need: str) -> bool:
    table = getattr(trace, need)
    return table is None or not len(table)


def may_be_counted(trace: Trace) -> bool:
    """Whether Nsight Compute can profile a device of the recording, as far as that is known."""
    vendors = {device.vendor for device in trace.devices if device.vendor}
    return not vendors or "nvidia" in vendors
