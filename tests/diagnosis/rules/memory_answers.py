"""Asks the memory rules."""

from pinchpoint.diagnosis.engine import ask, rule_modules
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.report.memory_findings import MEMORY_RULES
from pinchpoint.trace import Trace


def answers(trace: Trace) -> dict[str, Finding]:
    """The findings by id; no memory rule may crash."""
    said = [ask(id_, rule_modules()[id_], trace) for id_ in MEMORY_RULES]
    assert [o.why for o in said if o.answer == "crashed"] == []
    return {o.id: o.findings[0] for o in said if o.findings}
