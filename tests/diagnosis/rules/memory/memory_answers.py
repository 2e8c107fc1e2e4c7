"""Asks the memory rules."""

from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.registry import ask, rules
from pinchpoint.diagnosis.rule import About
from pinchpoint.trace import Trace


def answers(trace: Trace) -> dict[str, Found]:
    """The findings by id; no memory rule may crash."""
    said = [ask(known, trace) for known in rules().values() if known.rule.about is About.MEMORY]
    assert [o.why for o in said if o.answer == "crashed"] == []
    return {o.id: o.findings[0] for o in said if o.findings}
