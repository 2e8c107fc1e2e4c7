"""Does the first finding name the responsible place, and is anything said at all?

    python benchmarks/first_places.py FOLDER … [--rows]

A FOLDER is a corpus as for ``accuracy.py``, or holds recordings of ``benchmarks/programs``: run
folders (``i01-slow``) or files (``c03.slow.pt.trace.json.gz``). Of a case in several folders the
last one counts. Each slow program whose fix was measured to win a tenth of the step, or whose fix
was not measured, is asked for its first finding:

- *place*: the finding says the line, function, module or operator that ``place`` of the truth
  names, a regular expression over what is said and where (written from reading the programs;
  nothing of it reaches the product). Of a corpus: the piece of ``causal_worth.py``, or the cause.
- *silent*: nothing is found, though the fix won more than a tenth.
"""

import argparse
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pinchpoint as pp
from accuracy_rows import CALLED_HERE, recordings
from causal_worth import FIXES
from pinchpoint.errors import PinchpointError
from pinchpoint.report.words.closing import closing_sentence
from program_recordings import measured_ms, slow_programs

MATERIAL_RATIO = 0.1  # of the step: gains that runs tell from noise


@dataclass(frozen=True)
class Asked:
    """One slow recording, and what names its place; milliseconds a step where they are known."""

    case: str
    path: Path
    place: str
    before_ms: float | None = None
    after_ms: float | None = None


@dataclass(frozen=True)
class Answer:
    """The first finding of one recording."""

    asked: Asked
    score: str  # place, other, silent, not recorded
    said: str
    predicted_ms: float | None
    closing: str  # the verdict, and what the absence of findings means

    @property
    def named_in_closing(self) -> bool:
        """Whether nothing is found, and the verdict names the place."""
        return self.score == "silent" and bool(re.search(self.asked.place, self.closing))

    @property
    def nothing_worth_fixing(self) -> bool:
        """Whether that is said, without a doubt."""
        return "Nothing worth fixing" in self.closing


def main() -> int:
    """Print what is not named, and the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--rows", action="store_true", help="print every recording")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    asked = {one.case: one for folder in options.folders for one in _asked(folder)}
    found = []
    with ProcessPoolExecutor(options.workers) as pool:
        for one in pool.map(answered, asked.values()):
            found.append(one)
            if options.rows or one.score != "place":
                print(_row(one), flush=True)
    judged = [one for one in found if one.score != "not recorded"]
    count = {score: sum(one.score == score for one in judged) for score in ("place", "silent")}
    print(
        f"{len(judged)} slow programs: the first finding names the place in {count['place']}",
        f"({count['place'] / len(judged):.1%}); nothing is found in {count['silent']}, of which",
        f"the closing sentence names the place in {sum(one.named_in_closing for one in judged)};",
        f'"nothing worth fixing" is said of {sum(one.nothing_worth_fixing for one in judged)}',
    )
    return 0


def _asked(folder: Path) -> Iterator[Asked]:
    if (folder / "labelled" / "truth.jsonl").exists() or (folder / "h200").is_dir():
        yield from _of_corpus(folder)
        return
    for case, path, told in slow_programs(folder):
        before, after = measured_ms(told)
        if "place" not in told:
            continue
        if before is None or after is None or before - after >= MATERIAL_RATIO * before:
            yield Asked(case, path, told["place"], before, after)


def _of_corpus(corpus: Path) -> Iterator[Asked]:
    for path, truth in recordings(corpus):
        after = truth["after_fix_ns"]
        before = truth["unprofiled_ns"]
        if truth["variant"] != "slow" or not (truth["material"] and truth["time_case"]):
            continue
        if after is not None and before - after < MATERIAL_RATIO * before:
            continue
        ids = [CALLED_HERE.get(name, name) for name in truth["truth"] + truth.get("also", ())]
        fix = FIXES.get(truth["case"][:3])
        place = "|".join([f"^{name} " for name in ids] + ([fix.says or fix.names] if fix else []))
        yield Asked(
            path.name.removesuffix(".json.gz"), path, place, before / 1e6, after and after / 1e6
        )


def answered(asked: Asked) -> Answer:
    """What is said first of one recording."""
    try:
        report = pp.diagnose(asked.path)
    except PinchpointError as error:
        return Answer(asked, "not recorded", str(error)[:120], None, "")
    closing = f"{report.verdict} {closing_sentence(report)}"
    if not report.findings:
        return Answer(asked, "silent", "", None, closing)
    first = report.findings[0]
    said = f"{first.id} {first.summary} @ {first.location}"
    score = "place" if re.search(asked.place, said) else "other"
    predicted = None if first.predicted_step_ns is None else first.predicted_step_ns / 1e6
    return Answer(asked, score, said, predicted, closing)


def _row(one: Answer) -> str:
    asked = one.asked
    measured = f"{_ms(asked.before_ms)} → {_ms(asked.after_ms)}, said {_ms(one.predicted_ms)}"
    return f"{asked.case[:32]:32} {one.score:8} {measured}: {(one.said or one.closing)[:170]}"


def _ms(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    raise SystemExit(main())
