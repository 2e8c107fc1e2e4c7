"""Bytes and places as people read them."""

from pinchpoint.trace import Frame

# Memory is sold and allocated in powers of two.
_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def size(count: float) -> str:
    """Three significant digits: ``3.20 GiB``, ``512 B``."""
    for unit, scale in _UNITS:
        if abs(count) >= scale:
            value = count / scale
            digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{count:.0f} B"


def place(frame: Frame | None, operation: str | None = None) -> str:
    """``model.py:81 in forward (nn.linear)``."""
    if frame is None:
        return operation or "no Python line"
    name = frame.file.replace("\\", "/").rsplit("/", 1)[-1]
    where = f"{name}:{frame.line} in {frame.function}" if frame.line else frame.function
    return f"{where} ({operation})" if operation and operation != frame.function else where
