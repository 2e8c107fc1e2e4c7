"""``llama-bench -o json``, ``jsonl`` or ``csv``: rates of prompts and generation of llama.cpp."""

import csv
import io
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.memory import TABLE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import health_table
from pinchpoint.trace import Names, Source, SummaryTable, Trace

FORMAT = "llama-bench"
FILES = (".json .jsonl .csv", "llama-bench -o json|jsonl|csv")
READS: tuple[str, ...] = ("sums",)
NOT_READ = "single repetitions"

_SIGNS = (b"avg_ts", b"n_gen", b"n_prompt")
_LONGEST = 120  # characters of a name
_MOST_ROWS = 10_000  # of one table
# Settings that are shown where rows differ in them.
_SETTINGS = (
    "model_filename", "model_type", "backends", "gpu_info", "n_gpu_layers", "n_batch", "n_ubatch",
    "n_threads", "type_k", "type_v", "flash_attn", "split_mode", "n_depth",
)  # fmt: skip


def claims(path: Path, head: bytes) -> bool:
    """The names of its figures in the first record, or in the header."""
    return all(sign in head for sign in _SIGNS) and b"traceEvents" not in head


def read(path: Path) -> Trace:
    """A row a test; UnreadableFile where there is no rate."""
    with unpacked(path) as plain:
        must_fit(path, plain.stat().st_size, TABLE_TIMES)
        records = _records(path, plain.read_text("utf-8-sig", "replace"))
    rows = [record for record in records if _number(record.get("avg_ts")) is not None]
    if not rows:
        raise UnreadableFile(
            f"{path}: llama-bench without one rate", hint="run it again to its end"
        )
    names = Names()
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, recorder="llama-bench"),
        summaries=(_table(rows[:_MOST_ROWS]),),
        health=health_table([], names),
        names=names.freeze(),
    )


def _records(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        if text.lstrip()[:1] == "[":
            found = msgspec.json.decode(text)
        elif text.lstrip()[:1] == "{":
            found = [msgspec.json.decode(line) for line in text.splitlines() if line.strip()]
        else:
            found = list(csv.DictReader(io.StringIO(text)))
    except (msgspec.DecodeError, RecursionError, csv.Error) as error:
        raise UnreadableFile(
            f"{path}: cut off or broken ({error})", hint="copy it again, or run it again"
        ) from None
    return [one for one in found if isinstance(one, dict)]


def _table(rows: list[dict[str, Any]]) -> SummaryTable:
    said = {key: {_word(row.get(key)) for row in rows} for key in _SETTINGS}
    differ = [key for key in _SETTINGS if len(said[key]) > 1]
    cells = tuple(
        (
            _test(row),
            f"{_number(row['avg_ts']):,.4g}",
            _shown(row.get("stddev_ts")),
            *(_word(row.get(key)) for key in differ),
        )
        for row in rows
    )
    same = [_word(rows[0].get(key)) for key in ("model_type", "gpu_info") if key not in differ]
    title = ", ".join(word for word in same if word)
    return SummaryTable(("test", "tokens/s", "±", *differ), cells, title)


def _test(row: dict[str, Any]) -> str:
    """As llama-bench names it: pp512, tg128, pp512+tg128, each with the depth behind an @."""
    prompt, gen, depth = (_number(row.get(key)) or 0 for key in ("n_prompt", "n_gen", "n_depth"))
    name = "+".join(f"{k}{n:.0f}" for k, n in (("pp", prompt), ("tg", gen)) if n)
    return f"{name} @ d{depth:.0f}" if depth else name or "nothing"


def _shown(value: Any) -> str:
    number = _number(value)
    return "" if number is None else f"{number:,.3g}"


def _word(value: Any) -> str:
    return "" if value is None else str(value)[:_LONGEST]


def _number(value: Any) -> float | None:
    """A finite number, as JSON or as text of CSV."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < _LARGEST else None


_LARGEST = 1e15  # no rate or count is larger; NaN is not below it either
