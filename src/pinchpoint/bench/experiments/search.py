"""Several knobs: one change at a time on top of what was kept, and the best set confirmed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pinchpoint.bench.experiments.experiment import Experiment, Prediction
from pinchpoint.bench.experiments.knobs import Setting

Settings = tuple[Setting, ...]


@dataclass(frozen=True)
class Wanted:
    """One experiment that was asked for."""

    settings: Settings
    prediction: Prediction | None = None
    confirms: bool = False  # all that was kept, against the start

    @property
    def gain(self) -> float:
        """That is predicted; below every prediction where there is none."""
        return self.prediction.gain if self.prediction else -1.0


Try = Callable[[Wanted, Settings], Experiment]  # the change, and what is turned in both arms


def search(wanted: Sequence[Wanted], measure: Try) -> list[Experiment]:
    """Each change on top of those kept so far, the greatest promise first; a gain is kept.

    Then all that were kept at once against the start: gains of single changes need not add up, and
    the one that looked best did so with some luck.
    """
    kept: Settings = ()
    promised: Prediction | None = None  # of all that is kept, where that is one change
    done = []
    for one in sorted(wanted, key=lambda w: -w.gain):
        done.append(measure(one, kept))
        if done[-1].outcome == "gain":
            names = {s.knob.name for s in one.settings}
            promised = None if kept else one.prediction
            kept = (*(s for s in kept if s.knob.name not in names), *one.settings)
    if len(done) > 1 and kept:
        done.append(measure(Wanted(kept, promised, confirms=True), ()))
    return done
