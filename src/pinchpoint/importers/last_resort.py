"""Who reads a file that no reader claims: any text has lines, any table has columns."""

from pathlib import Path
from types import ModuleType

from pinchpoint.regex import regex

# Not ``[2026-08-02 00:02:22]`` and ``[rank0]``, as lines of logs begin.
_JSON = regex(rb'\s*(?:\{\s*(?:"|\}|\Z)|"\{|\[\s*(?:[{\["\]]|-?[\d.eE+-]+\s*(?:,|\]\s*\Z)|\Z))')
_PRINTED = regex(rb"\s*\{'\w[^{}\n]{0,2000}\}\s*\n")  # a dictionary of Python on its own line
_MARKUP = regex(rb"\s*<(?:\?xml|!|[a-zA-Z])")
_MOST_CONTROL = 0.01  # of the bytes: text has colours and ends of lines


def any_readers(path: Path, head: bytes) -> tuple[ModuleType, ...]:
    """Readers of any text like this, to be asked in turn; none for a folder, or what is no text."""
    control = sum(byte < 32 and byte not in b"\t\n\r\f\x1b\b" for byte in head)
    if not head or control > _MOST_CONTROL * len(head) or _MARKUP.match(head):
        return ()
    from pinchpoint.importers import own_figures, program_logs

    if _PRINTED.match(head):
        return (program_logs,)
    if _JSON.match(head.removeprefix(b"\xef\xbb\xbf")):
        return own_figures, program_logs
    return (own_figures,) if own_figures.is_table(path) else (program_logs,)


def is_recording(path: Path) -> bool:
    """Whether a file is claimed as more than a table of somebody's figures, as many outputs are."""
    from pinchpoint.importers import own_figures
    from pinchpoint.importers.open import format_of

    return format_of(path) not in (None, own_figures.FORMAT)


__all__ = ["any_readers", "is_recording"]
