"""A shortage of memory in words: what happened, and what would have been enough."""

from pinchpoint.analysis.memory.failures import Failure
from pinchpoint.analysis.memory.history import History
from pinchpoint.analysis.memory.pressure import Pressure
from pinchpoint.analysis.memory.remedies import largest_batch_factor, needed_bytes, remedies
from pinchpoint.analysis.memory.wording import size


def describe(history: History, signs: Pressure) -> tuple[str, str]:
    """The shortage in a phrase, and its consequence with the smallest change that would do."""
    failure = signs.failure
    if failure is None:
        return signs.sentence.capitalize(), signs.sentence
    head = f"Out of memory (a request of {size(failure.wanted_bytes)} failed)"
    return head, _consequence(history, failure)


def _consequence(history: History, failure: Failure) -> str:
    needed, limit = needed_bytes(failure), failure.limit_bytes
    words = [f"the step needs {size(needed)}, {size(limit)} could be reserved"]
    if failure.capped:
        words[0] += " (a limit of the process: the device had room)"
    if failure.forecast is not None and failure.forecast.scale > 1:
        words.append(
            f"it allocates {failure.forecast.scale:.2f} × what the last step that fitted did"
            f" (peak {size(failure.forecast.earlier_peak_bytes)})"
        )
    factor = largest_batch_factor(history, failure)
    if factor is not None and factor < 1:
        words.append(f"about {factor:.2f} × its batch would fit")
    first = next((r for r in remedies(history, failure) if r.fits), None)
    if first is not None:
        words.append(f"smallest change that fits: {first.label} ({size(first.needed_bytes)})")
    return "; ".join(words)
