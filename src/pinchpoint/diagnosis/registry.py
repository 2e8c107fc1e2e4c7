"""Every rule by its id, found by listing the folder, and the page of each."""

import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from inspect import getdoc
from types import ModuleType
from typing import TYPE_CHECKING

import pinchpoint.diagnosis.rules as home
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.errors import UsageError
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.ranks.job import Job


@dataclass(frozen=True)
class Known:
    """A rule, its declaration and what it does."""

    id: str
    rule: Rule
    check: Callable[[Trace], Iterator[Found]]
    check_job: Callable[["Job"], Iterator[Found]] | None = None


@cache
def rules() -> dict[str, Known]:
    """All rules, in alphabetical order of id."""
    return {id_: _known(id_, import_module(path)) for id_, path in _paths().items()}


def _known(id_: str, module: ModuleType) -> Known:
    job = module.check_job if module.RULE.looks_at == "job" else None
    return Known(id_, module.RULE, module.check, job)


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
    """The rule's page: one sentence, then the headings of ``rule.HEADINGS``.

    Raises UsageError, with the nearest names, if there is no such rule.
    """
    path = _paths().get(rule_id)
    if path is None:
        close = related(rule_id)
        hint = f"did you mean: {', '.join(close)}" if close else "pinchpoint explain lists them"
        raise UsageError(f"there is no rule {rule_id!r}", hint=hint)
    return getdoc(import_module(path)) or ""


def related(text: str) -> list[str]:
    """At most three ids that the text is a misspelling of, or shares a word with."""
    words = {word for word in text.lower().replace("_", "-").split("-") if len(word) > 2}
    sharing = [r for r in rule_ids() if words & set(r.split("-"))]
    sharing.sort(key=lambda r: r.split("-")[0] not in words)
    close = get_close_matches(text.lower(), rule_ids(), n=3, cutoff=0.75)
    return list(dict.fromkeys([*close, *sharing]))[:3]


def headline(rule_id: str) -> str:
    """The first sentence of a rule's page."""
    return page(rule_id).partition("\n")[0]
