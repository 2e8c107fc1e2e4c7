"""Whether a baseline is of this machine, asked before minutes are spent on measuring."""

from typing import TYPE_CHECKING

from pinchpoint.errors import NotComparable

if TYPE_CHECKING:
    from pinchpoint.bench.baselines import Baseline

# What is known without the program: its Python, its torch and what it sets are judged afterwards.
_OF_THE_HOST = "host."


def must_be_of_this_machine(past: "Baseline | None") -> None:
    """NotComparable where the host differs in what forbids a comparison, as far as both know it."""
    if past is None:
        return
    from pinchpoint.monitor.environment import differences, environment, refusals

    found = refusals(differences(past.env, environment(), stored=True))
    known = [d for d in found if d.path.startswith(_OF_THE_HOST) and d.why == "differs"]
    if known:
        said = "; ".join(d.in_words("in the baseline", "here") for d in known[:3])
        raise NotComparable(
            f"the baseline is of another machine or set-up: {said}",
            hint="nothing was measured; compare on the same node with bench ab, start a baseline"
            " here, or --force",
        )
