"""What the cells of a notebook printed, and what their code records to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.memory import TABLE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.files.strangers import Answer, guess
from pinchpoint.regex import regex

_SIGN = regex(rb'\s*\{\s*"(?:cells"\s*:\s*\[|nbformat(?:_minor)?"\s*:|metadata"\s*:\s*\{)')
_WORDS = (b'"cell_type"', b'"nbformat"', b'"kernelspec"', b'"colab"')
_EXPORTS = regex(
    r"export_chrome_trace\(\s*f?[\"']([^\"']+)|tensorboard_trace_handler\(\s*f?[\"']([^\"']+)"
    r"|_dump_snapshot\(\s*f?[\"']([^\"']+)|start_trace\(\s*f?[\"']([^\"']+)"
)
_MOST_LINES = 1_000_000  # a notebook that printed more cannot be opened either


def is_notebook(head: bytes) -> bool:
    """Whether a file that begins like this is a notebook of Jupyter or Colab."""
    return _SIGN.match(head) is not None and any(word in head for word in _WORDS)


def printed(path: Path) -> list[list[str]]:
    """Lines that each of its cells printed; UnreadableFile for one that is cut off."""
    found: list[list[str]] = []
    left = _MOST_LINES
    for cell in _dicts(_document(path).get("cells")):
        found.append(list(_of_cell(cell, "outputs"))[:left])
        left -= len(found[-1])
    return [cell for cell in found if cell]


def answer(path: Path) -> Answer:
    """What a notebook without a figure is, and what to give instead."""
    document = _document(path)
    text = "\n".join(_lines(document, "outputs")).encode("utf-8", "replace")
    known = guess(text[: 1 << 16], text[1 << 16 :])
    what = f"a notebook that shows {known[0]}" if known else "a notebook, not a recording"
    code = "\n".join(_lines(document, "source"))
    if found := _EXPORTS.search(code):
        wrote = next(group for group in found.groups() if group)
        return what, f"give what its cell records to: {wrote}"
    return what, known[1] if known else (
        'record in a cell, and give the file: prof.export_chrome_trace("trace.json")'
    )


def _document(path: Path) -> dict[str, Any]:
    with unpacked(path) as plain:
        must_fit(path, plain.stat().st_size, TABLE_TIMES)
        text = plain.read_bytes()
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableFile(
            f"{path}: a notebook that is cut off or broken ({error})", hint="copy it again"
        ) from None


def _lines(document: dict[str, Any], part: str) -> Iterator[str]:
    for cell in _dicts(document.get("cells")):
        yield from _of_cell(cell, part)


def _of_cell(cell: dict[str, Any], part: str) -> Iterator[str]:
    if part == "source":
        yield from _text(cell.get("source")).splitlines()
        return
    for output in _dicts(cell.get(part)):
        data = output.get("data")
        shown = data.get("text/plain") if isinstance(data, dict) else output.get("text")
        yield from _text(shown).splitlines()


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""
