"""Sentences about how much of the device's arithmetic a step uses, the same in every report."""

from collections.abc import Iterator

from pinchpoint.report.documents.roofline import PointInfo, RooflineDocument, UtilisationInfo
from pinchpoint.report.quantity import duration, number, percent, rate

LEAST_UNKNOWN_RATIO = 0.02  # of kernel time: less cannot change a figure of two digits
ABOVE_RATIO = 1.005  # rounds to more than 100 %
FAR_ABOVE_RATIO = 1.3  # of the roof: more than a cache or a clock explains


def utilisation_sentences(used: UtilisationInfo) -> Iterator[str]:
    """The step, then MFU and HFU, throughput, and what has no cost model; only what is known."""
    step, mean_ns = f"{duration(used.step_ns)} ({used.step_how})", used.mean_step_ns
    of_all = "" if mean_ns is None else f"; the mean step takes {duration(mean_ns)}"
    yield f"{'Typical step' if of_all else 'Step'} {step}{of_all}"
    if used.mfu is not None and used.hfu is not None:
        yield _share_of_peak(used, used.mfu, used.hfu)
        devices = "" if used.devices == 1 else f" x {used.devices} devices"
        yield (
            f"  {rate(used.flops_per_step, 'FLOP')} a step in matrix work, mostly {used.dtype};"
            f" peak {rate(used.peak_flop_per_s, 'FLOP/s')}{devices}"
        )
        if used.mfu_of_measured is not None:
            measured = rate(used.measured_peak_flop_per_s, "FLOP/s")
            yield f"  {percent(used.mfu_of_measured)} % of the measured {measured}"
    if (items := used.throughput) is not None and items.per_s is not None:
        yield f"{number(items.per_s)} {items.unit}/s ({items.per_step} a step: {items.basis})"
    if used.not_modelled_ratio is not None:
        yield f"Not modelled: {percent(used.not_modelled_ratio)} % of kernel time"


def utilisation_line(used: UtilisationInfo | None) -> str | None:
    """How much of the device's peak the step uses, and its throughput, as one line."""
    if used is None:
        return None
    said = []
    if used.mfu and used.hfu is not None and percent(used.mfu) != percent(0.0):
        said.append(f"{_share_of_peak(used, used.mfu, used.hfu)} ({used.dtype})")
    if (items := used.throughput) is not None and items.per_s is not None:
        said.append(f"{number(items.per_s)} {items.unit}/s")
    return ", ".join(said) or None


def _share_of_peak(used: UtilisationInfo, mfu: float, hfu: float) -> str:
    part = (used.not_modelled_ratio or 0.0) >= LEAST_UNKNOWN_RATIO
    words = f"MFU {'at least ' if part else ''}{percent(mfu)} %"
    again = used.recomputed_flops_per_step or used.attention_again_flops_per_step
    if again and percent(hfu) != percent(mfu):
        words += f", HFU {percent(hfu)} % with recomputation"
    unmasked = used.mfu_unmasked
    if unmasked is not None and percent(unmasked) != percent(mfu):
        words += f"; {percent(unmasked)} % if causal attention counts whole"
    return words


def above_the_ceiling(document: RooflineDocument) -> Iterator[str]:
    """Why some points pass their roof, which nothing can: one sentence a reason."""
    reasons: dict[str, list[PointInfo]] = {}
    for point in document.points:
        if point.roof_ratio is not None and point.roof_ratio > ABOVE_RATIO:
            reasons.setdefault(_why_above(point, document), []).append(point)
    for reason, points in reasons.items():
        most = max(points, key=lambda p: p.roof_ratio or 0.0)
        others = f" and {len(points) - 1} more" if len(points) > 1 else ""
        name = most.name.removeprefix("aten::")
        share = percent(most.roof_ratio or 0.0)
        yield f"above the ceiling: {name} ({share} %){others}: {reason}"


def _why_above(point: PointInfo, document: RooflineDocument) -> str:
    if point.bound == "compute":
        if "conv" in point.name:
            return "the kernel needs fewer operations than the direct convolution that is counted"
        return "it computed in a faster format than its kernel's name tells, or did less"
    if (point.roof_ratio or 0.0) >= FAR_ABOVE_RATIO and point.kind == "operator":
        return "bytes are counted from whole shapes, and it touches a part of them"
    cache = "the L2 cache served a part of the bytes"
    measured = any(roof.measured for roof in document.roofs if roof.dtype is None)
    return f"{cache}, or the measured ceiling is too low" if measured else cache
