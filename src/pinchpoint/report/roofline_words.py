"""Sentences about how much of the device's arithmetic a step uses, the same in every report."""

from collections.abc import Iterator

from pinchpoint.report.quantity import duration, number, percent
from pinchpoint.report.rates import rate
from pinchpoint.report.roofline_document import UtilisationInfo


def utilisation_sentences(used: UtilisationInfo) -> Iterator[str]:
    """The step, then MFU and HFU, throughput, and what has no cost model; only what is known."""
    yield f"Step {duration(used.step_ns)} ({used.step_how})"
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


def _share_of_peak(used: UtilisationInfo, mfu: float, hfu: float) -> str:
    words = f"MFU {percent(mfu)} %"
    if used.recomputed_flops_per_step:
        words += f", HFU {percent(hfu)} % with recomputation"
    unmasked = used.mfu_unmasked
    if unmasked is not None and percent(unmasked) != percent(mfu):
        words += f"; {percent(unmasked)} % if causal attention counts whole"
    return words
