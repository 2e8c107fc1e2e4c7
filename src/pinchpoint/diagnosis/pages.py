"""The page of each rule: its docstring, found by the rule's name."""

import pkgutil
from difflib import get_close_matches
from importlib import import_module
from inspect import getdoc

import pinchpoint.diagnosis.rules as home
from pinchpoint.errors import UsageError


def rule_ids() -> tuple[str, ...]:
    """The ids of all rules, in alphabetical order."""
    names = (m.name for m in pkgutil.iter_modules(home.__path__))
    return tuple(sorted(n.replace("_", "-") for n in names if not n.startswith("_")))


def page(rule_id: str) -> str:
    """The rule's page: one sentence, then the headings of ``rule.HEADINGS``.

    Raises UsageError, with the nearest names, if there is no such rule.
    """
    if rule_id not in rule_ids():
        close = related(rule_id)
        hint = f"did you mean: {', '.join(close)}" if close else "pinchpoint explain lists them"
        raise UsageError(f"there is no rule {rule_id!r}", hint=hint)
    return getdoc(import_module(f"{home.__name__}.{rule_id.replace('-', '_')}")) or ""


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
