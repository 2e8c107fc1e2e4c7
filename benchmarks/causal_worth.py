"""Is a piece worth what its fix gained?

    python benchmarks/causal_worth.py CORPUS [--document]

CORPUS as for ``accuracy.py``. For each program whose fix takes one piece away, makes it as fast as
the machine allows, or takes its host time away, the causal profile's step without it (at its limit,
without its host time) is held against the step that was measured after the fix. Which piece a fix
is about stands below, from reading the two programs; nothing of it reaches the product. Fixes that
do the same work in another way (fusing, batching, capturing, another number format) are no piece's
worth, and are listed as such.
"""

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pinchpoint as pp
from pinchpoint.analysis.causal.pieces import Cut
from pinchpoint.analysis.causal.profile import Piece, causal
from pinchpoint.report import diagnose

MATERIAL_RATIO = 0.1  # of the step: gains that runs tell from noise
# Two windows of one program without the profiler that agree this well can judge what is said of it;
# the same as in accuracy.py.
STABLE_RATIO = 0.05


@dataclass(frozen=True)
class Fix:
    """The pieces of one cut that a fix is about, and what it makes of them."""

    cut: str
    names: str  # regular expression
    how: str = "free"  # free, limit, host
    says: str = ""  # what a sentence that names it says; default: its function or operator
    besides: str = ""  # pieces of the same cut that the fix takes away altogether


_BATCHES = Fix("wait", r"^enumerate\(Data", says="[Bb]atch|[Ll]oader")
_OWN_BATCHES = Fix("phase", r"^enumerate\(Data", says=_BATCHES.says)
_SCALAR = Fix("function", "method item of", says="item")
FIXES = {
    "s02": Fix("line", "scan"),
    "s05": _BATCHES,
    "s14": Fix("line", r"s14\.py\(\d+\): (histogram|grid)"),
    "s19": Fix("line", "select_mask"),
    "s39": Fix("line", "nucleus"),
    "s61": _BATCHES,
    # Searching launches kernels too; the one that is left takes half a millisecond of them.
    "s65": Fix("operator", "cudnn_convolution$", says="[Cc]onvolution"),
    "s66": Fix("operator", "aten::index$", "limit", "lookup"),
    "u03": Fix("operator", "index_add_", "limit", "added by index"),
    "u05": Fix("line", "mask_tokens"),
    "u07": Fix("operator", "_index_put_impl_", "limit", "whose index"),
    "u11": Fix("operator", "linalg_qr", "limit"),
    "u14": Fix("line", r"u14\.py\(\d+\): train_step", "limit", "embedding|table"),
    # What index_add_ is made of in this mode, and the filling of what has just been allocated.
    "u23": Fix("operator", "_index_put_impl_", "limit", "by index", r"aten::(mul|fill_)$"),
    "w01": Fix("operator", "aten::copy_", "limit", "across their layout"),
    "w02": Fix("operator", "aten::copy_", "limit", "across their layout"),
    "w03": Fix("operator", "aten::copy_", "limit", "across their layout"),
    "c01": _OWN_BATCHES, "c02": _BATCHES, "c04": _BATCHES, "c05": _BATCHES, "c07": _BATCHES,
    "d01": _OWN_BATCHES,
    "c12": Fix("copy", "HtoD.*Pageable", "limit", "pageable"),
    "c14": Fix("function", "method to of", says="copie[sd]"),
    "c16": _SCALAR,
    "c17": Fix("line", "masked_mean"),
    "c18": Fix("wait", "cudaDeviceSynchronize|cudaStreamSynchronize"),
    "c20": Fix("function", "_cuda_emptyCache", says="empty_cache"),
    "c23": _SCALAR,
    "c64": Fix("line", "sampl|nucleus|pick"),
    "c38": Fix("operator", "aten::add$", "limit", "across|contiguous"),
}  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """One program: milliseconds a step."""

    case: str
    truth: str
    before: float
    after: float
    base: float | None  # the profile's step without the profiler
    said: float | None  # without the piece, at its limit, …
    first: str
    stable: bool  # the two windows before the fix agree
    named: bool  # the first finding names the piece's place, operator or call

    @property
    def error(self) -> float | None:
        """Of what the piece is worth, against the measured gain."""
        if self.said is None or self.base is None:
            return None
        gain = self.before - self.after
        return abs((self.base - self.said) - gain) / gain

    @property
    def error_of_share(self) -> float | None:
        """The same of shares of the step: whatever pace the recorded steps had."""
        if self.said is None or self.base is None:
            return None
        gain = 1 - self.after / self.before
        return abs((1 - self.said / self.base) - gain) / gain

    @property
    def error_after(self) -> float | None:
        """Of the step after the fix, as a share of the measured step before it."""
        return None if self.said is None else abs(self.said - self.after) / self.before


def main() -> int:
    """Print a row a program, and the median error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--document", action="store_true", help="as rows of a Markdown table")
    options = parser.parse_args()
    found, other = [], []
    for row, after in _slow_rows(options.corpus):
        if row["case"][:3] not in FIXES:
            other.append(f"{row['case']} ({row['truth']})")
            continue
        found.append(_judged(options.corpus, row, after))
        print(_line(found[-1], document=options.document))
    worth = [one.error for one in found if one.error is not None]
    after = [one.error_after for one in found if one.error_after is not None]
    print(
        f"{len(found)} programs, {len(worth)} with the piece. Error of its worth: median", end=" "
    )
    print(f"{np.median(worth):.1%}, within 10 %: {sum(e <= 0.1 for e in worth)}")
    steady = [one.error for one in found if one.error is not None and one.stable]
    print(f"of the {len(steady)} whose windows agree within {STABLE_RATIO:.0%}:", end=" ")
    print(f"median {np.median(steady):.1%}, within 10 %: {sum(e <= 0.1 for e in steady)}")
    share = [one.error_of_share for one in found if one.error_of_share is not None]
    print(f"of its worth as a share of the step: median {np.median(share):.1%},", end=" ")
    print(f"within 10 %: {sum(e <= 0.1 for e in share)}")
    print(f"error of the step after the fix, of the step before: median {np.median(after):.1%},")
    print(f"within 10 %: {sum(e <= 0.1 for e in after)}")
    print(f"first finding names the piece: {sum(one.named for one in found)} of {len(found)}")
    print(f"fixes that are no piece's worth, {len(other)}: {', '.join(other)}")
    return 0


def _slow_rows(corpus: Path) -> Iterator[tuple[dict[str, Any], float]]:
    """Rows of slow programs, with the milliseconds after the fix for the same items."""
    for name in ("h200", "labelled"):
        path = corpus / name / "truth.jsonl"
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        fixed = {row["case"]: row for row in rows if row["variant"] == "fixed"}
        for row in rows:
            if row["variant"] != "slow" or row["rank"] or row["world"] > 1:
                continue
            row["path"] = corpus / name / "traces" / f"{row['case']}.slow.json.gz"
            after = row.get("step_ms_fixed")
            if after is None and row["case"] in fixed:
                twin = fixed[row["case"]]
                items = (row.get("items_per_step") or 1) / (twin.get("items_per_step") or 1)
                after = [ms * items for ms in twin["step_ms_unprofiled"]]
            before = np.mean(row["step_ms_unprofiled"])
            if after is None or not row["path"].is_file():
                continue
            if before - np.mean(after) >= MATERIAL_RATIO * before:
                yield row, float(np.mean(after))


def _judged(corpus: Path, row: dict[str, Any], after: float) -> Judged:
    trace, fix = pp.load(row["path"]), FIXES[row["case"][:3]]
    profile = causal(trace, fix.cut)
    pieces = profile.of(Cut(fix.cut))
    mine = [p for p in pieces if re.search(fix.names, p.name)]
    besides = [p for p in pieces if fix.besides and re.search(fix.besides, p.name)]
    said, base = None, None
    if mine and profile.base_ns is not None:
        base = profile.base_ns / 1e6
        gained = sum(p.base_ns - _after(p, fix.how) for p in mine)
        gained += sum(p.base_ns - p.step_if_free_ns for p in besides)
        said = (profile.base_ns - gained) / 1e6
    findings = diagnose(trace, detailed=False).findings
    first = findings[0] if findings else None
    text = f"{first.summary} {first.location}" if first else ""
    return Judged(
        row["case"], row["truth"], float(np.mean(row["step_ms_unprofiled"])), after, base, said,
        first.id if first else "-",
        max(row["step_ms_unprofiled"]) <= (1 + STABLE_RATIO) * min(row["step_ms_unprofiled"]),
        bool(re.search(fix.says or "|".join(map(_name, mine)), text)),
    )  # fmt: skip


def _after(piece: Piece, how: str) -> int:
    return {
        "free": piece.step_if_free_ns,
        "limit": piece.step_at_limit_ns,
        "host": piece.step_without_host_ns,
    }[how]


def _name(piece: Piece) -> str:
    """What a sentence about the piece has in it: a function, or an operator."""
    _, _, function = piece.name.rpartition(": ")
    return re.escape(function.removeprefix("aten::").strip("_"))


def _line(one: Judged, *, document: bool) -> str:
    said = "-" if one.said is None else f"{one.said:.2f}"
    base = "-" if one.base is None else f"{one.base:.2f}"
    error = "-" if one.error is None else f"{one.error:.0%}"
    named = "yes" if one.named else f"no: {one.first}"
    cells = (one.case, one.truth, f"{one.before:.2f}", f"{one.after:.2f}", base, said, error, named)
    if document:
        return f"| {' | '.join(cells)} |"
    what = f"{one.case[:26]:26} {one.truth[:28]:28}"
    return f"{what} {cells[2]:>8} {cells[3]:>8} {base:>8} {said:>8} {error:>6} {named}"


if __name__ == "__main__":
    raise SystemExit(main())
