"""FLOPs, FLOP/s and bytes/s as people write them: powers of a thousand."""

from pinchpoint.report.quantity import number

_SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def rate(value: float | None, unit: str) -> str:
    """``787 TFLOP/s``, ``2.95 TB/s``; a dash for None."""
    if value is None:
        return "-"
    scale, prefix = next((s for s in _SCALES if abs(value) >= s[0]), _SCALES[-1])
    return f"{number(value / scale)} {prefix}{unit}"
