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


FACTS: dict[str, FactKind] = {
    "telemetry-no-value": FactKind(
        Severity.NOTE, "the device or driver did not give a value that was asked for"
    ),
    "telemetry-torn-lines": FactKind(
        Severity.NOTE, "lines of the log are cut off or hold messages, and were left out"
    ),
    "telemetry-without-time": FactKind(
        Severity.WARNING, "samples carry no time, so only their order is known"
    ),
}
