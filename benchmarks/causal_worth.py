"""Is a piece worth what its fix gained?

    python benchmarks/causal_worth.py CORPUS [FOLDER …] [--document]

CORPUS as for ``accuracy.py``; a FOLDER holds recordings of ``benchmarks/programs``. For each
program whose fix takes one piece away, makes it as fast as the machine allows, or takes its host
time away, the causal profile's step without it (at its limit, without its host time) is held
against the step that was measured after the fix. Which piece a fix is about stands below, from
reading the two programs; nothing of it reaches the product. Fixes that do the same work in another
way (fusing, batching, capturing, another number format) are no piece's worth, and are listed as
such. Steps were measured in two windows: as in ``accuracy.py`` the measured step is the lower one,
since disturbances only make steps longer; the figure for the mean of both is printed beside it.
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
from program_recordings import measured_ms, slow_programs

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


_BATCHES = Fix("wait", r"^enumerate\(Data", says="[Bb]atch|[Ll]oader|worker processes")
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
    "c21": Fix("function", "collect", says="collected"),
    "c23": _SCALAR,
    "c25": Fix("line", "log$"),
    "c26": Fix("line", "step$", says="writes a checkpoint in step"),
    # As of s65: the search, beside convolutions of half a millisecond.
    "c33": Fix("operator", "cudnn_convolution$", says="[Cc]onvolution"),
    "c64": Fix("line", "sampl|nucleus|pick"),
    "c38": Fix("operator", "aten::add$", "limit", "across|contiguous"),
}  # fmt: skip

# The same of ``benchmarks/programs``: recorded files, and whole programs that were run.
PROGRAM_FIXES = {
    "a01": Fix("function", "__format__"),
    "a02": Fix("operator", "aten::cumsum", "limit", "scan_outer"),
    "a06": Fix("function", "collect", says="collected"),
    "b02": Fix("operator", "_index_put_impl_", "limit", "whose index"),
    "b03": Fix("line", "keep"),
    "b05": Fix("line", "make"),
    "c04": Fix("line", "sample"),
    "d01": Fix("line", "decode"),
    "d02": Fix("line", "fetch"),
    "d03": Fix("operator", "kthvalue", "limit", "gatherKthValue"),
    "d08": Fix("line", "value", "limit"),
    "d10": Fix("copy", "DtoD", says="copies a step"),
    "e01 live": Fix("operator", "_fft_(r2c|c2r)", "limit", "_fft"),
    "e02 live": Fix("operator", "_index_put_impl_", "limit", "whose index"),
    "f11 live": Fix("operator", "_coalesce", says="smooth"),
    "h01 live": Fix("line", "_build"),
    "h05 live": Fix("operator", "_index_put_impl_", "limit", "whose index"),
    "h06 live": Fix("line", "draw"),
    "h07 live": Fix("operator", "cudnn_convolution$", says="[Cc]onvolution"),
    "i01 live": Fix("line", "update"),
    "i08 live": Fix("line", "keep"),
    "i10 live": Fix("operator", "aten::sort", "limit"),
    "j01 live": Fix("line", "slope"),
    "j07 live": Fix("line", "__call__"),
    "j09 live": Fix("operator", "_index_put_impl_", "limit", "whose index"),
}


@dataclass(frozen=True)
class Judged:
    """One program: milliseconds a step."""

    case: str
    truth: str
    before: float
    after: float
    mean_before: float  # of both windows
    mean_after: float
    base: float | None  # the profile's step without the profiler
    said: float | None  # without the piece, at its limit, …
    first: str
    stable: bool  # the two windows before the fix agree
    named: bool  # the first finding names the piece's place, operator or call

    @property
    def error(self) -> float | None:
        """Of what the piece is worth, against the measured gain."""
        return self._error(self.before - self.after)

    @property
    def error_of_means(self) -> float | None:
        """The same against the gain from mean to mean."""
        return self._error(self.mean_before - self.mean_after)

    def _error(self, gain: float) -> float | None:
        if self.said is None or self.base is None:
            return None
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
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--document", action="store_true", help="as rows of a Markdown table")
    options = parser.parse_args()
    found, other = [], []
    for row, after in _slow_rows(options.corpus):
        if row["case"][:3] not in FIXES:
            other.append(f"{row['case']} ({row['truth']})")
            continue
        found.append(_judged(row, after, FIXES[row["case"][:3]]))
        print(_line(found[-1], document=options.document))
    for row, after in _programs(options.folders):
        if row["case"] not in PROGRAM_FIXES:
            other.append(f"{row['case']} ({row['truth'][:40]})")
            continue
        found.append(_judged(row, after, PROGRAM_FIXES[row["case"]]))
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
    means = [one.error_of_means for one in found if one.error_of_means is not None]
    print(f"against means of both windows: median {np.median(means):.1%},", end=" ")
    print(f"within 10 %: {sum(e <= 0.1 for e in means)}")
    share = [one.error_of_share for one in found if one.error_of_share is not None]
    print(f"of its worth as a share of the step: median {np.median(share):.1%},", end=" ")
    print(f"within 10 %: {sum(e <= 0.1 for e in share)}")
    print(f"error of the step after the fix, of the step before: median {np.median(after):.1%},")
    print(f"within 10 %: {sum(e <= 0.1 for e in after)}")
    print(f"first finding names the piece: {sum(one.named for one in found)} of {len(found)}")
    print(f"fixes that are no piece's worth, {len(other)}: {', '.join(other)}")
    return 0


def _slow_rows(corpus: Path) -> Iterator[tuple[dict[str, Any], list[float]]]:
    """Rows of slow programs, with the milliseconds after the fix for the same items, twice."""
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
                yield row, list(after)


def _programs(folders: list[Path]) -> Iterator[tuple[dict[str, Any], list[float]]]:
    """The same of programs in folders; of a case in several folders, the last one."""
    found = {case: (path, told) for one in folders for case, path, told in slow_programs(one)}
    for case, (path, told) in found.items():
        before, after = measured_ms(told)
        if before is None or after is None or before - after < MATERIAL_RATIO * before:
            continue
        steps = told.get("step_ms_h200") or told["measured_ms"]
        windows = steps[told["variant_with_cause"]]
        windows = windows if isinstance(windows, list) else [windows]
        row = {"case": case, "truth": told["truth"], "path": path, "step_ms_unprofiled": windows}
        yield row, [after]


def _judged(row: dict[str, Any], after: list[float], fix: Fix) -> Judged:
    trace = pp.load(row["path"])
    profile = causal(trace.with_names, fix.cut)
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
        row["case"], row["truth"], min(row["step_ms_unprofiled"]), min(after),
        float(np.mean(row["step_ms_unprofiled"])), float(np.mean(after)), base, said,
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
