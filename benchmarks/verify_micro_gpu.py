"""Checks ``pp.time`` on a CUDA device against other timers, and against itself.

    python benchmarks/verify_micro_gpu.py [--json OUT]

1. Each operation by ``pp.time``, by ``triton.testing.do_bench`` and by ``torch.utils.benchmark``,
   several times in alternating order, like against like:

   - ``do_bench`` overwrites 256 MB, then times one call between two events, with the queue full.
     Once for 20 ms after a rest, which is what *cold* does; and as users call it, for 500 ms.
   - ``Timer.blocked_autorange`` runs calls back to back, and waits after each block, for as long as
     *sustained* does. Where a call costs the host more than the device, it sees the host.

   The SM clock comes from the device itself: a kernel that spins for a known number of cycles is
   timed right after each timer. Ours rests the device between samples, so the clock after it is
   that of a rested device; the two lengths of ``do_bench`` are the pair whose clocks compare. Where
   two timers differ by more than 2 %, that says why, or the row says "not explained". Under a long
   load the clock moves while it lasts, so NVML is asked for it every few milliseconds, and the mean
   of the last part of the load stands beside the time.
2. A/A: the same operation timed again and again; intervals must cover the overall median.
3. Under load: time of a product, clock and power, from rest through six seconds of load.
4. Planted: a kernel with 5 % more work must be seen as slower, with intervals that do not touch.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pynvml
import torch

from pinchpoint.bench.micro.time_function import time_function
from pinchpoint.bench.micro.timing import StoppingRule

AGREE = 0.02
ROUNDS = 3
REPEATS = 20
REST_S = 0.15  # lets power and clock recover before a timer that is meant to be short
RULE = StoppingRule(precision=0.002, most_seconds=0.4)
SUSTAINED_S = 1.0  # the second half counts
AT_THE_LIMIT_S = 6.0  # the same where power is the limit: its control swings once a second or so
NEAR_THE_LIMIT_RATIO = 0.9  # of the power limit
CLOCK_EVERY_S = 0.005
SPIN_CYCLES = 400_000  # 0.2 ms: the resolution of events is a quarter of a per cent of it
MODES_AFTER_A_REST = ("batched", "hot", "cold")
EVENT_NS = 1_000.0  # what a pair of events around one short kernel adds, and how well it is known

Operation = Callable[[], Any]


@dataclass(frozen=True)
class Reading:
    """Times of one timer over the rounds, microseconds, and the SM clock right after each."""

    us: float
    lowest_us: float
    highest_us: float
    sm_mhz: float
    load_mhz: float | None = None  # as NVML has it, mean of the last part of the load
    load_watts: float | None = None

    @property
    def cycles(self) -> float:
        """Clock cycles of a call, by the clock during the load where that was read."""
        return self.us * (self.load_mhz or self.sm_mhz)


@dataclass(frozen=True)
class Against:
    """Ours against another timer that does the same."""

    what: str
    ratio: float  # ours / theirs - 1, by time
    cycles_ratio: float  # the same by clock cycles
    verdict: str


def operations() -> dict[str, Operation]:
    """Compute-bound, memory-bound beyond and within the L2, and launch-bound; random data."""
    half = {"device": "cuda", "dtype": torch.bfloat16}
    a, b = torch.randn(4096, 4096, **half), torch.randn(4096, 4096, **half)
    large, small = torch.randn(256 << 20, **half), torch.randn(4 << 20, **half)
    tiny, rows = torch.randn(64, 64, **half), torch.randn(8192, 4096, **half)
    q = torch.randn(4, 16, 2048, 128, **half)
    attention = torch.nn.functional.scaled_dot_product_attention
    return {
        "gemm 4096^3 bf16": lambda: torch.mm(a, b),
        "attention 4x16x2048x128": lambda: attention(q, q, q),
        "add 512 MiB (beyond L2)": lambda: torch.add(large, 1.0),
        "softmax 8192x4096": lambda: torch.softmax(rows, -1),
        "add 8 MiB (inside L2)": lambda: torch.add(small, 1.0),
        "mm 64x64": lambda: torch.mm(tiny, tiny),
    }


def sm_clock_mhz() -> float:
    """Cycles over time of a spinning kernel, queued behind whatever was just measured."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(SPIN_CYCLES)
    stop.record()
    torch.cuda.synchronize()
    return SPIN_CYCLES / (1e3 * float(start.elapsed_time(stop)))


class ClockLog:
    """SM clock and power of the device, read in a thread of its own while something runs."""

    def __enter__(self) -> "ClockLog":
        self.samples: list[tuple[float, int, float]] = []  # time, MHz, W
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _read(self) -> None:
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
        while not self._end.wait(CLOCK_EVERY_S):
            mhz = pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM)
            watts = pynvml.nvmlDeviceGetPowerUsage(device) / 1e3
            self.samples.append((time.perf_counter(), mhz, watts))

    def mean(self, begin: float, end: float) -> tuple[float, float] | None:
        """Mean clock and power between two times of ``perf_counter``."""
        inside = [(mhz, watts) for at, mhz, watts in self.samples if begin <= at <= end]
        if not inside:
            return None
        return mean(m for m, _ in inside), mean(w for _, w in inside)


def needs_all_power(fn: Operation) -> bool:
    """Whether a second of it brings the device near its power limit."""
    with ClockLog() as log:
        begin = time.perf_counter()
        while time.perf_counter() - begin < SUSTAINED_S:
            for _ in range(20):
                fn()
            torch.cuda.synchronize()
        end = time.perf_counter()
    device = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
    limit_w = pynvml.nvmlDeviceGetEnforcedPowerLimit(device) / 1e3
    seen = log.mean(end - SUSTAINED_S / 4, end)
    return seen is not None and seen[1] >= NEAR_THE_LIMIT_RATIO * limit_w


def do_bench_us(fn: Operation, milliseconds: int) -> float | None:
    """Median by triton, None if triton is not installed."""
    try:
        from triton.testing import do_bench
    except ImportError:
        return None
    warm = min(25, milliseconds)
    return 1e3 * float(do_bench(fn, warmup=warm, rep=milliseconds, return_mode="median"))


def torch_timer_us(fn: Operation, seconds: float) -> float:
    """Median by torch.utils.benchmark, after as long a warm-up as *sustained* has."""
    from torch.utils.benchmark import Timer

    timer = Timer("fn()", globals={"fn": fn})
    timer.blocked_autorange(min_run_time=seconds / 2)
    return 1e6 * float(timer.blocked_autorange(min_run_time=seconds / 2).median)


def readings(fn: Operation) -> dict[str, Reading]:
    """All timers in turn, the order reversed every other round."""
    seen: dict[str, list[tuple[float, float]]] = {}
    loads: dict[str, list[tuple[float, float]]] = {}
    timers: list[Callable[[], None]] = []

    def note(name: str, us: float | None) -> None:
        if us is not None:
            seen.setdefault(name, []).append((us, sm_clock_mhz()))

    def ours() -> None:
        timing = time_function(fn, rule=RULE)
        note("batched", timing.batched.median_ns / 1e3)
        for samples in (timing.hot, timing.cold):
            note(samples.mode, samples.median_ns / 1e3)
        seen.setdefault("issue", []).append((timing.batched.issue_ns / 1e3, 1.0))

    def loaded(name: str, measure: Callable[[], float | None], last_s: float) -> None:
        with ClockLog() as log:
            us = measure()
            end = time.perf_counter()
        note(name, us)
        if there := log.mean(end - last_s, end):
            loads.setdefault(name, []).append(there)

    def ours_sustained() -> float:
        quick = replace(RULE, most_seconds=0.02, least_seconds=0.0, sustained_seconds=seconds)
        timing = time_function(fn, rule=quick, cold=False)
        return timing.sustained.median_ns / 1e3

    seconds = AT_THE_LIMIT_S if needs_all_power(fn) else SUSTAINED_S

    timers = [
        ours,
        lambda: loaded("do_bench 20 ms", lambda: do_bench_us(fn, 20), 0.02),
        lambda: loaded("do_bench 500 ms", lambda: do_bench_us(fn, 500), 0.5),
        lambda: loaded("sustained", ours_sustained, seconds / 2),
        lambda: loaded("torch timer", lambda: torch_timer_us(fn, seconds), seconds / 2),
    ]
    for i in range(ROUNDS):
        for timer in timers if i % 2 == 0 else reversed(timers):
            time.sleep(REST_S)
            timer()
    return {name: _reading(values, loads.get(name, [])) for name, values in seen.items()}


def _reading(values: list[tuple[float, float]], load: list[tuple[float, float]]) -> Reading:
    us = [u for u, _ in values]
    during = (median(mhz for mhz, _ in load), median(w for _, w in load)) if load else (None, None)
    return Reading(median(us), min(us), max(us), median(mhz for _, mhz in values), *during)


def judged(found: dict[str, Reading]) -> list[Against]:
    """Like against like, and why where they differ."""
    pairs = [
        ("cold", "do_bench 20 ms"),
        ("cold", "do_bench 500 ms"),
        ("sustained", "torch timer"),
        ("batched", "torch timer"),
    ]
    return [_against(found, ours, other) for ours, other in pairs if other in found]


def _against(found: dict[str, Reading], ours: str, other: str) -> Against:
    a, b = found[ours], found[other]
    ratio, cycles = a.us / b.us - 1, a.cycles / b.cycles - 1
    return Against(f"{ours} / {other}", ratio, cycles, _why(found, ours, a, b, ratio, cycles))


def _why(
    found: dict[str, Reading], ours: str, a: Reading, b: Reading, ratio: float, cycles: float
) -> str:
    if abs(ratio) <= AGREE:
        return "agrees"
    issue = found["issue"].us
    if ours in ("sustained", "batched") and issue > found["batched"].us:
        paced = abs(b.us / issue - 1)
        return f"launch-bound: it sees the host, {paced:.0%} from the issue time {issue:.2f} us"
    if ours == "cold" and abs(a.us - b.us) * 1e3 <= EVENT_NS:
        return f"{abs(a.us - b.us):.2f} us apart, within what a pair of events can tell"
    loaded = found["sustained"].us
    if ours == "batched" and loaded > (1 + AGREE) * a.us:
        return f"load: ours rests between samples; without rests it too takes {loaded:.2f} us"
    short, long = found.get("do_bench 20 ms"), found.get("do_bench 500 ms")
    if ours == "cold" and b is long and short and abs(a.us / short.us - 1) <= AGREE:
        same = long.cycles / short.cycles - 1
        if abs(same) <= AGREE:
            return (
                f"clock: {short.load_mhz or short.sm_mhz:.0f} MHz in 20 ms of do_bench,"
                f" {long.load_mhz or long.sm_mhz:.0f} in 500 ms; in cycles {abs(same):.1%} apart"
            )
    if ours not in MODES_AFTER_A_REST and abs(cycles) <= AGREE:
        clocks = (a.load_mhz or a.sm_mhz, b.load_mhz or b.sm_mhz)
        return f"clock: {clocks[0]:.0f} against {clocks[1]:.0f} MHz; in cycles they agree"
    return "not explained"


def again_and_again() -> dict[str, Any]:
    """A/A: how many of the intervals cover the median of all medians."""
    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    timings = [time_function(torch.mm, a, a, rule=RULE, cold=False) for _ in range(REPEATS)]
    medians = np.array([t.median_ns for t in timings])
    middle = float(np.median(medians))
    intervals = [t.batched.ci95_ns or (0.0, 0.0) for t in timings]
    return {
        "repeats": REPEATS,
        "median_us": middle / 1e3,
        "intervals_that_cover": sum(low <= middle <= high for low, high in intervals),
        "worst_deviation": float(np.abs(medians / middle - 1).max()),
        "median_half_width": float(
            np.median([(h / m - 1) for (_, h), m in zip(intervals, medians, strict=True)])
        ),
        "samples": [len(t.batched.call_ns) for t in timings],
    }


def planted() -> dict[str, Any]:
    """5 % more of the inner dimension of a product, and of the elements of an add."""
    half = {"device": "cuda", "dtype": torch.bfloat16}
    results = {}
    for name in ("gemm", "add"):
        runs: list[Operation] = []
        for n in (4096, 4304) if name == "gemm" else (163_840, 172_032):
            x = torch.randn(n, 4096, **half)
            runs.append((lambda x=x: x.T @ x) if name == "gemm" else (lambda x=x: x + 1.0))
        a, b = (time_function(run, rule=RULE, cold=False) for run in runs)
        intervals = (a.batched.ci95_ns, b.batched.ci95_ns)
        found = None not in intervals and intervals[1][0] > intervals[0][1]
        results[name] = {"ratio": b.median_ns / a.median_ns - 1, "found": found}
    return results


def under_load() -> list[dict[str, float]]:
    """A product back to back from rest: time of a call, clock and power, thirty times in 6 s."""
    fn = operations()["gemm 4096^3 bf16"]
    fn()
    torch.cuda.synchronize()
    time.sleep(2.0)
    rows, calls = [], 100
    with ClockLog() as log:
        begin = time.perf_counter()
        while time.perf_counter() - begin < AT_THE_LIMIT_S:
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            at = time.perf_counter()
            start.record()
            for _ in range(calls):
                fn()
            stop.record()
            stop.synchronize()
            seen = log.mean(at, time.perf_counter()) or (0.0, 0.0)
            call_us = 1e3 * start.elapsed_time(stop) / calls
            rows.append({"at_s": at - begin, "us": call_us, "mhz": seen[0], "watts": seen[1]})
    return rows[:: max(len(rows) // 30, 1)]


def main() -> None:
    """Run the three checks and print them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    begin = time.time()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    rows = {}
    for name, fn in operations().items():
        found = readings(fn)
        verdicts = judged(found)
        rows[name] = {
            "readings": {k: asdict(r) for k, r in found.items()},
            "against": [asdict(v) for v in verdicts],
        }
        print(f"\n{name}")
        for timer, r in found.items():
            clock = "" if timer == "issue" else f"  SM {r.sm_mhz:5.0f} MHz after"
            if r.load_mhz is not None:
                clock += f", {r.load_mhz:.0f} MHz and {r.load_watts:.0f} W during"
            print(f"  {timer:16} {r.us:9.2f} us  ({r.lowest_us:.2f} to {r.highest_us:.2f}){clock}")
        for v in verdicts:
            print(f"  {v.what:28} {v.ratio:+7.1%}  cycles {v.cycles_ratio:+7.1%}  {v.verdict}")
    heating = under_load()
    print("\nunder load, from rest: s, us a call, MHz, W")
    for row in heating:
        print("  " + "  ".join(f"{value:8.2f}" for value in row.values()))
    repeated, slower = again_and_again(), planted()
    print(f"\nA/A: {repeated}\nplanted 5 %: {slower}\n{time.time() - begin:.0f} s")
    if options.json:
        text = {"rows": rows, "aa": repeated, "planted": slower, "under_load": heating}
        options.json.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
