"""One more pair of runs of a comparison that failed, in which the changed lines are timed."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.cli.output import note

if TYPE_CHECKING:
    from pinchpoint.bench.ab.changed_code import ChangedCode
    from pinchpoint.bench.ab.costly_lines import LineCosts, Range
    from pinchpoint.bench.ab.result import AbResult
    from pinchpoint.bench.run import Arm, RunOptions
    from pinchpoint.bench.run.lines import LinesSeen

_ANY = 1e9  # times as long: nothing is known of how long at most
_Asked = dict[str, "tuple[Range, ...]"]


def line_costs(
    code: "Sequence[ChangedCode]",
    arms: "tuple[Arm, Arm]",
    result: "AbResult",
    options: "RunOptions",
    folder: Path,
) -> "LineCosts":
    """What the changed lines took of a step.

    Both run as the pairs did: at the same time, on exchanged halves of the CPUs, with threads that
    sleep, and for as many steps.
    """
    from pinchpoint.bench.ab.arms import checkout_of
    from pinchpoint.bench.ab.changed_code import text_of
    from pinchpoint.bench.ab.costly_lines import LineCosts, Timed, asked, costly_line, grown_parts
    from pinchpoint.errors import PinchpointError

    tops = [checkout_of(arm.cwd or Path.cwd()) for arm in arms]
    if None in tops or not any(run.steps for run in result.runs):
        return LineCosts()
    texts = tuple(
        {one.file: text_of(top, one.file, None) for one in code if one.hunks} for top in tops if top
    )
    wanted = [asked(code, text, now=i == 1) for i, text in enumerate(texts)]
    if not wanted[1]:
        return LineCosts()
    note("one more pair, to see which of the changed lines costs")
    watched = [_watching(*one) for one in zip(arms, tops, wanted, strict=True)]
    try:
        seen = _timed((watched[0], watched[1]), bool(wanted[0]), result, options, folder)
    except PinchpointError as error:
        note(f"the changed lines could not be timed: {error.message}")
        return LineCosts()
    if seen[1] is None or (wanted[0] and seen[0] is None):
        return LineCosts()
    longer, most = _longer(result)
    a, b = Timed(wanted[0], seen[0], 1 / (1 + longer)), Timed(wanted[1], seen[1])
    costly = costly_line(code, a, b, (texts[0], texts[1]), most / (1 + most))
    return LineCosts(costly, grown_parts(code, a, b))


def _longer(result: "AbResult") -> tuple[float, float]:
    """How much longer a step of B is, and at most, by the pairs."""
    from pinchpoint.bench.measures import OWN_TIME, STEP_TIME

    by_name = {m.name: m for m in result.measures if m.ci95_ratio is not None}
    step = by_name.get(OWN_TIME) or by_name.get(STEP_TIME)
    if step is None or step.ci95_ratio is None:
        return 0.0, _ANY
    return max(step.estimate_ratio, 0.0), max(step.ci95_ratio[1], 0.0)


def _watching(arm: "Arm", top: Path | None, lines: _Asked) -> "Arm":
    from pinchpoint.inside import LINES_VARIABLE

    if not lines or top is None:
        return arm
    files = {str(top / file): ranges for file, ranges in lines.items()}
    return replace(arm, env=dict(arm.env) | {LINES_VARIABLE: json.dumps(files)})


def _timed(
    arms: "tuple[Arm, Arm]",
    both: bool,
    result: "AbResult",
    options: "RunOptions",
    folder: Path,
) -> "list[LinesSeen | None]":
    """Of A and of B. ``both``: something is timed in A, too."""
    from pinchpoint.bench.ab.at_once import both_at_once
    from pinchpoint.bench.run import Place, measure_run
    from pinchpoint.bench.run.enough import ENDED_AFTER
    from pinchpoint.bench.run.lines import read_lines
    from pinchpoint.bench.run.swapped import Swap

    last = result.runs[-1]
    steps = last.counters.get(ENDED_AFTER)
    options = replace(
        options,
        end_after=str(int(steps)) if steps else options.end_after,
        threads_sleep=last.threads_sleep,
        at_once=last.at_once,
        patterns={},
    )
    places = [folder / f"lines-{arm.name}" for arm in arms]
    swap = Swap() if last.swapped else None
    runs = [
        partial(measure_run, arm, options, Place(place, side=swap.side(place) if swap else None))
        for arm, place in zip(arms, places, strict=True)
    ]
    if last.at_once:
        both_at_once(*runs)
    else:
        for run in runs if both else runs[1:]:
            run()
    return [_by_file(read_lines(place), arm) for arm, place in zip(arms, places, strict=True)]


def _by_file(seen: "LinesSeen | None", arm: "Arm") -> "LinesSeen | None":
    """The same by the file's place in its checkout, as it is asked for."""
    from pinchpoint.bench.ab.arms import checkout_of

    top = checkout_of(arm.cwd or Path.cwd())
    if seen is None or top is None:
        return None
    share = {(str(Path(file).relative_to(top)), n): part for (file, n), part in seen.share.items()}
    return replace(seen, share=share)
