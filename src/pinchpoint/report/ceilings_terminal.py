"""Measured ceilings for a terminal."""

from collections.abc import Iterator

from pinchpoint.hardware.ceilings import Ceilings, Measurement
from pinchpoint.report.plain import ascii_only, plain
from pinchpoint.report.quantity import duration, percent
from pinchpoint.report.rates import rate
from pinchpoint.report.terminal import Look

_PLAIN = Look()
_WORDS = {
    "copy": "memory, copy",
    "triad": "memory, triad",
    "read": "memory, read",
    "h2d-pinned": "host to device, pinned",
    "h2d-pageable": "host to device, pageable",
    "d2h-pinned": "device to host, pinned",
    "d2h-pageable": "device to host, pageable",
    "device-to-device": "device to device",
    "launch-host": "launch, host",
    "launch-device": "launch, back to back",
    "launch-latency": "launch and wait",
}


def render_ceilings(ceilings: Ceilings, look: Look = _PLAIN) -> str:
    """The document as text that ends with a newline."""
    lines = [plain(f"{ceilings.device}, measured {ceilings.measured_at}"), ""]
    lines += _rows(ceilings, look)
    for refused in ceilings.refused:
        what = f"{refused.what} {refused.dtype or ''}".strip()
        value = "" if not refused.value else f" {_value(refused.value, refused.unit)}"
        lines.append(plain(f"! {what}{value}: {refused.why}"))
    text = "\n".join(lines) + "\n"
    return text if look.unicode else ascii_only(text)


def _rows(ceilings: Ceilings, look: Look) -> Iterator[str]:
    for m in ceilings.measurements:
        sheet = "" if m.data_sheet_ratio is None else f"{percent(m.data_sheet_ratio)} % of sheet"
        clock = "" if m.sm_clock_hz is None else f"{m.sm_clock_hz / 1e6:.0f} MHz"
        power = "" if m.power_w is None else f"{m.power_w:.0f} W"
        line = f"{_name(m):<26} {_value(m.value, m.unit):>13}  {sheet:<17} {clock:>8} {power:>6}"
        yield line.rstrip()
        if look.verbose:
            spread = "" if m.spread_ratio is None else f", spread {percent(m.spread_ratio)} %"
            held = f", held down by {', '.join(m.throttled)}" if m.throttled else ""
            yield f"    {m.at}{spread}{held}"


def _name(m: Measurement) -> str:
    if m.what == "gemm":
        return f"product {m.dtype}, {m.mode}"
    return _WORDS.get(m.what, m.what)


def _value(value: float, unit: str) -> str:
    if unit == "ns":
        return duration(value)
    return rate(value, "B/s" if unit == "bytes/s" else unit)
