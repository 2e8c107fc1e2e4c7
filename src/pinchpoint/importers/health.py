"""What a file itself shows to be wrong or missing: the facts importers may state.

Each id has the sentence for people and the severity that it has by default.
"""

from dataclasses import dataclass

from pinchpoint.trace import Severity


@dataclass(frozen=True)
class FactKind:
    """One kind of health fact."""

    severity: Severity
    sentence: str


FACTS: dict[str, FactKind] = {}
