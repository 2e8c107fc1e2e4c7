"""The page of a calibration: what this machine can see."""

from pinchpoint.bench.ab.result import Calibration
from pinchpoint.report.blocks import Table
from pinchpoint.report.pages.result import ResultPage, table


def page(done: Calibration) -> ResultPage:
    """Noise by measure, what a number of pairs sees, how many pairs a change needs."""
    return ResultPage(
        title=f"calibration of {done.bench_id}",
        headline="two identical commands, interleaved: all differences are noise",
        tables=(_visible(done), _needed(done)),
        warnings=(*done.warnings, *_alarms(done)),
        notes=tuple(
            f"{n.label} has two speeds, {n.two_speeds_ratio:.0%} apart: pin CPUs, NUMA node, clocks"
            for n in done.noise
            if n.two_speeds_ratio
        ),
    )


def _visible(done: Calibration) -> Table:
    columns = list(done.noise[0].visible_ratio) if done.noise else []
    rows = [
        (
            n.label,
            str(n.pairs),
            f"{100 * n.sd_pair_log:.2f} %",
            *(f"{100 * n.visible_ratio[c]:.1f} %" for c in columns),
        )
        for n in done.noise
    ]
    header = ("", "pairs", "sd of a pair", *(f"{c} pairs see" for c in columns))
    return table("measure", header, tuple(rows))


def _needed(done: Calibration) -> Table:
    columns = list(done.noise[0].pairs_needed) if done.noise else []
    rows = [
        (
            n.label,
            *("> 400" if n.pairs_needed[c] is None else str(n.pairs_needed[c]) for c in columns),
        )
        for n in done.noise
    ]
    return table("pairs needed", ("", *(f"for {c}" for c in columns)), tuple(rows))


def _alarms(done: Calibration) -> list[str]:
    return [
        f"{n.label}: the rule called identical commands {n.verdict}"
        for n in done.noise
        if n.verdict == "regressed"
    ]
