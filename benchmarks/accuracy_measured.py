"""All labelled recordings judged, and constants chosen without each program family in turn."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pinchpoint as pp
from accuracy_figures import corrections, gains
from accuracy_rows import Row, judged, judged_jobs, labelled, untuned
from held_out import HeldOut, after_a_fix, as_it_is
from recording_cost import HeldOutCosts, Sample, held_out, sample


@dataclass(frozen=True)
class Measured:
    """All that was judged."""

    labelled: list[Row]
    untuned: list[Row]
    jobs: list[Row]
    unprofiled: HeldOut  # the step without the profiler, ranges of shares from other families
    gains: HeldOut  # the same for the step after the fix
    costs: HeldOutCosts | None

    @property
    def sets(self) -> tuple[tuple[str, list[Row]], ...]:
        """The sets of single recordings, by what people call them."""
        return (
            ("recordings", self.labelled),
            ("programs that nobody tuned for", self.untuned),
        )


def measure(corpus: Path, only: str = "") -> Measured:
    """Run the product over every recording, and choose constants without each family in turn."""
    samples: list[Sample] = []
    rows = [_judged(labelled(corpus, only), samples), _judged(untuned(corpus, only), samples)]
    everything = rows[0] + rows[1]
    return Measured(
        *rows,
        list(judged_jobs(corpus, only)),
        as_it_is(list(corrections(everything))),
        after_a_fix(list(gains(everything))),
        held_out(samples),
    )


def _judged(recordings: Iterable[tuple[Path, dict[str, Any]]], samples: list[Sample]) -> list[Row]:
    rows = []
    for path, truth in recordings:
        trace = pp.load(path)
        rows.append(judged(trace, truth))
        known = sample(trace, truth["case"], truth["unprofiled_ns"], truth["apart"])
        samples += [known] if known else []
    return rows
