"""Of how much device time is it known what it needs?

    python benchmarks/causal_modelled.py FOLDER [--rows]

Every recording below FOLDER that has device work, whatever its format: the share of the time of
all device operations (kernels, copies, fills and collectives) without a limit in the causal
profile, and why: the device is not named, shapes are not recorded, no operator is (replayed graphs,
tools that record kernels alone), or there is no model.
"""

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pinchpoint as pp
from pinchpoint.analysis.causal.limits import needed_limits
from pinchpoint.analysis.costs import OperatorCall
from pinchpoint.analysis.limits.roofs import roofs
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.errors import PinchpointError
from pinchpoint.trace import DeviceKind, Trace

_MOST_TOLD = 30
MOSTLY_RATIO = 0.5  # of the device time: such a recording is mostly unknown
NO_DEVICE, NO_SHAPES, NO_MODEL = "no device is named", "no shapes", "no model"


@dataclass(frozen=True)
class Recording:
    """One recording and what of its device time has no limit."""

    path: Path
    ratio: float
    by_name: Counter[str]
    by_reason: Counter[str]

    @property
    def reason(self) -> str:
        """Of most of it; empty where all has a limit."""
        return max(self.by_reason, key=lambda why: self.by_reason[why], default="")


def main() -> int:
    """Print the median, the spread and the names that most of it comes from."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", action="store_true", help="print every recording")
    options = parser.parse_args()
    found = sorted(_recordings(options.folder), key=lambda r: -r.ratio)
    if options.rows:
        for one in found:
            most = ", ".join(
                f"{name[:40]} {share:.2f}" for name, share in one.by_name.most_common(3)
            )
            print(f"{one.ratio:7.1%} {one.path.relative_to(options.folder)}: {most}")
    ratios = np.array([one.ratio for one in found])
    total: Counter[str] = Counter()
    for one in found:
        total.update(one.by_name)
    for name, share in total.most_common(_MOST_TOLD):
        print(f"{share / len(found):7.2%} {name[:90]}")
    print(f"{len(found)} recordings; device time without a limit: median {np.median(ratios):.1%},")
    print(f"mean {ratios.mean():.1%}, 90th percentile {np.percentile(ratios, 90):.1%},")
    mostly = Counter(one.reason for one in found if one.ratio > MOSTLY_RATIO)
    print(
        f"more than half in {mostly.total()}:", ", ".join(f"{n} {why}" for why, n in mostly.items())
    )
    known = np.array([r.ratio for r in found if not r.by_reason.keys() & {NO_DEVICE, NO_SHAPES}])
    print(f"of the {len(known)} with a named device and shapes: mean {known.mean():.1%}")
    return 0


def _recordings(folder: Path) -> Iterator[Recording]:
    for place, _, names in os.walk(folder, followlinks=True):
        for name in sorted(names):
            path = Path(place) / name
            if path.suffix in (".md", ".txt", ".jsonl", ".toml", ".py"):
                continue
            try:
                trace = pp.load(path)
            except PinchpointError:
                continue
            if trace.device_ops is not None and trace.device_ops["duration_ns"].sum():
                yield _of(path, trace)


def _of(path: Path, trace: Trace) -> Recording:
    ops = trace.device_ops
    assert ops is not None
    took = ops["duration_ns"].astype(np.float64)
    unknown = np.isnan(needed_limits(trace).limit_ns)
    calls, by_name, by_reason = launched_calls(trace), Counter[str](), Counter[str]()
    named = roofs(trace) is not None
    for row in np.flatnonzero(unknown & (took > 0)).tolist():
        call = int(calls.which[row])
        name = DeviceKind(int(ops["kind"][row])).name.lower()
        if name == "kernel":
            kernel = (trace.text(ops, "name", row) or "").removeprefix("void ")[:60]
            name = calls.calls[call].call.name if call < len(calls.calls) else f"kernel {kernel}"
        by_name[name] += took[row] / took.sum()
        one = calls.calls[call].call if call < len(calls.calls) else None
        by_reason[_why(name, one, named=named)] += took[row] / took.sum()
    return Recording(path, float(took[unknown].sum() / took.sum()), by_name, by_reason)


def _why(name: str, call: OperatorCall | None, *, named: bool) -> str:
    if not named:
        return NO_DEVICE
    if name == "collective":
        return "collectives whose size or link is not known"
    if call is None:
        return "kernels without an operator"
    return NO_MODEL if any(call.shapes) else NO_SHAPES


if __name__ == "__main__":
    raise SystemExit(main())
