"""Does the answer survive another cut of the same recording?

    python benchmarks/stability.py CORPUS [--only TEXT] [--rows] [--document docs/stability.md]

Every labelled and own Kineto recording is written again with less in it: the first or the second
half of its steps, without Python stacks, without shapes, or broken off. Its first finding should be
the same. With less evidence to go by, silence or the more general cause is right as well; another
cause is not. CORPUS is the folder that ``benchmarks/accuracy.py`` reads.
"""

import argparse
import gzip
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pinchpoint as pp
from pinchpoint.diagnosis.engine import diagnose, parents
from pinchpoint.errors import PinchpointError
from pinchpoint.trace import Severity

Event = dict[str, Any]

DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"})
SHAPES = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
VERDICTS = ("same", "less", "other")
KEPT_RATIO = 0.7  # of the bytes of a file that breaks off
FEWEST_STEPS = 6  # halves of fewer leave too little to judge


def first_half(events: list[Event]) -> list[Event] | None:
    """The first half of the marked steps."""
    return _steps(events, 0.0, 0.5)


def second_half(events: list[Event]) -> list[Event] | None:
    """The second half of the marked steps."""
    return _steps(events, 0.5, 1.0)


def without_stacks(events: list[Event]) -> list[Event] | None:
    """As recorded without ``with_stack``."""
    if not any(e.get("cat") == "python_function" for e in events):
        return None
    return [e for e in events if e.get("cat") != "python_function"]


def without_shapes(events: list[Event]) -> list[Event] | None:
    """As recorded without ``record_shapes``."""
    if not any("Input Dims" in _args(e) for e in events):
        return None
    return [e | {"args": {k: v for k, v in _args(e).items() if k not in SHAPES}} for e in events]


CUTS: dict[str, Callable[[list[Event]], list[Event] | None]] = {
    "first half": first_half,
    "second half": second_half,
    "without stacks": without_stacks,
    "without shapes": without_shapes,
}


def _args(event: Event) -> Event:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _steps(events: list[Event], low: float, high: float) -> list[Event] | None:
    """Events of some of the marked steps, with the device work that they launched."""
    marks = sorted(
        (float(e["ts"]), float(e["ts"]) + float(e["dur"]))
        for e in events
        if e.get("cat") == "user_annotation" and str(e.get("name", "")).startswith("ProfilerStep#")
    )
    if len(marks) < FEWEST_STEPS:
        return None
    chosen = marks[int(low * len(marks)) : int(high * len(marks))]
    begin, end = chosen[0][0], chosen[-1][1]
    host = [e for e in events if e.get("cat") not in DEVICE and _clipped(e, begin, end)]
    called = {_args(e).get("correlation") for e in host} - {None}
    device = [e for e in events if e.get("cat") in DEVICE and _args(e).get("correlation") in called]
    meta = [e for e in events if "ts" not in e or e.get("ph") == "M"]
    return [*meta, *(_clip(e, begin, end) for e in host), *device]


def _clipped(event: Event, begin: float, end: float) -> bool:
    """Whether the event lies in the window, at least in part; metadata does not."""
    if event.get("ph") == "M" or "ts" not in event:
        return False
    start = float(event["ts"])
    return start < end and start + float(event.get("dur", 0)) > begin


def _clip(event: Event, begin: float, end: float) -> Event:
    """The event as a recording of the window shows it: open rows are cut at its edges."""
    if "dur" not in event:
        return event
    start, stop = float(event["ts"]), float(event["ts"]) + float(event["dur"])
    start, stop = max(start, begin), min(stop, end)
    return event | {"ts": round(start, 3), "dur": round(stop - start, 3)}


@dataclass(frozen=True)
class Variant:
    """One recording, cut in one way, and what was said of it before and after."""

    name: str
    cut: str
    before: tuple[str, ...]
    after: tuple[str, ...]  # nothing too where the recording was refused

    @property
    def verdict(self) -> str:
        """``same``, ``less`` (silence, or the cause's parent), or ``other``."""
        if self.after[:1] == self.before[:1]:
            return "same"
        if not self.after or (self.before and _family(self.before[0]) == _family(self.after[0])):
            return "less"
        return "other"


def _family(id_: str) -> str:
    return next(reversed([id_, *parents(id_)]))


def variants(path: Path, folder: Path) -> Iterator[Variant]:
    """The answers for one recording and all its cuts."""
    text = gzip.decompress(path.read_bytes())
    document = json.loads(text)
    before = _said(path)
    for name, cut in CUTS.items():
        events = cut(document["traceEvents"])
        if events is not None:
            rest = {k: v for k, v in document.items() if k != "traceEvents"}
            content = json.dumps(rest | {"traceEvents": events}).encode()
            yield Variant(path.name, name, before, _written(folder, content))
    yield Variant(
        path.name, "broken off", before, _written(folder, text[: int(KEPT_RATIO * len(text))])
    )


def _written(folder: Path, content: bytes) -> tuple[str, ...]:
    target = folder / "trace.json.gz"
    target.write_bytes(gzip.compress(content, 1))
    return _said(target)


def _said(path: Path) -> tuple[str, ...]:
    """Findings, best first; none where the file is refused or forbids conclusions."""
    try:
        trace = pp.load(path)
    except PinchpointError:
        return ()
    if trace.health is not None and (trace.health["severity"] == Severity.FATAL).any():
        return ()
    return tuple(r.id for r in diagnose(trace).found)


def main() -> int:
    """Print what changed, and a summary for each cut."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--document", type=Path)
    options = parser.parse_args()
    found: list[Variant] = []
    paths = [
        *sorted((options.corpus / "labelled" / "traces").glob("*.json.gz")),
        *sorted((options.corpus / "own" / "traces").glob("*.json.gz")),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            if options.only in path.name:
                for variant in variants(path, Path(folder)):
                    found.append(variant)
                    if options.rows or variant.verdict == "other":
                        print(_row(variant))
    for line in summary(found):
        print(line)
    if options.document:
        options.document.write_text(_document(found), "utf-8")
    return 0


_PAGE = """# Does the answer survive another cut?

{recordings} recordings, labelled and own, were written again with less in them and diagnosed again:

```
python benchmarks/stability.py CORPUS --document docs/stability.md
```

*Same* is the same first finding, or none in both. *Less* is silence, or the more general cause:
right where the evidence is gone (a file without shapes cannot show a prefix that grows; a file that
breaks off before its device work is refused). *Other* is another cause, and should not be.

| cut | recordings | same | less | other |
|---|---|---|---|---|
{table}
Of {silent} cuts of recordings without a finding, {stay} have none either.

## Another cause

| recording | cut | before | after |
|---|---|---|---|
{others}"""


def _document(found: list[Variant]) -> str:
    silent = [v for v in found if not v.before]
    others = "".join(
        f"| {v.name.removesuffix('.json.gz')} | {v.cut} | {v.before[0] if v.before else 'nothing'}"
        f" | {v.after[0]} |\n"
        for v in found
        if v.verdict == "other"
    )
    table = ""
    for cut, count in _counts(found):
        shares = " | ".join(f"{count[v] / max(count.total(), 1):.0%}" for v in VERDICTS)
        table += f"| {cut} | {count.total()} | {shares} |\n"
    stay = sum(not v.after for v in silent)
    recordings = len({v.name for v in found})
    return _PAGE.format(
        recordings=recordings, table=table, silent=len(silent), stay=stay, others=others
    )


def _counts(found: list[Variant]) -> Iterator[tuple[str, Counter[str]]]:
    for cut in [*CUTS, "broken off", "all"]:
        yield cut, Counter(v.verdict for v in found if cut in ("all", v.cut))


def _row(v: Variant) -> str:
    before, after = (", ".join(ids[:3]) or "nothing" for ids in (v.before, v.after))
    return f"{v.verdict:5s} {v.name:46s} {v.cut:15s} {before} -> {after}"


def summary(found: list[Variant]) -> Iterator[str]:
    """What became of the first findings, by cut and over all."""
    for cut, count in _counts(found):
        total = max(count.total(), 1)
        shares = (f"{verdict} {count[verdict] / total:.0%}" for verdict in VERDICTS)
        yield f"{cut:16s} {total:4d}: {', '.join(shares)}"
    silent = [v for v in found if not v.before]
    yield f"silent recordings that stay silent: {sum(not v.after for v in silent)} of {len(silent)}"


if __name__ == "__main__":
    sys.exit(main())
