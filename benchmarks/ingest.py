"""How fast traces are read, against what anyone could do instead, all in one run.

./run bench ingest                       a made-up trace of 500 MB
./run bench ingest --size 60M            another size
./run bench ingest --file TRACE.json.gz  a trace of your own
./run bench ingest --layouts               the same trace as other tools lay it out
./run bench ingest --hta PYTHON          an interpreter that has HolisticTraceAnalysis

Each contender runs in a process of its own, with one thread for NumPy's BLAS as ``pinchpoint``
sets it; its time leaves out start-up and imports, and peak memory is that of the process. The aim:
the native reader takes at most 1.2 times as long as the standard library takes just to unpack the
file, and at most 0.6 times the memory that its text has bytes. It uses two cores, so on a busy
machine it loses more than the others. Last comes the whole of ``pinchpoint diagnose`` with start-up
and imports, which should take less than 1.5 s for 60 MB of text.
"""

import argparse
import gzip
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import synthetic_trace
import trace_layouts

MOST_TIME_RATIO = 1.2  # of unpacking alone
MOST_MEMORY_RATIO = 0.6  # of the text
LIMITS_FROM_BYTES = 400_000_000  # below, the interpreter itself is most of the memory
MOST_DIAGNOSE_S = 1.5
# Times as long as the layout of torch.profiler for the same recording: the same events take 7 to
# 26 MB of text, so that time a MB says little. It is printed as well.
SLOWEST_LAYOUT = 2
MOST_LAYOUT_MEMORY = 1  # of the text, beside what the interpreter and its imports take
LIMIT_HOLDS_UP_TO_BYTES = 60_000_000
PATIENCE_S = 240

TIMED = """
import sys, time
{imports}
begin = time.perf_counter()
{work}
print(time.perf_counter() - begin)
"""
READ = "trace = kineto.read(Path(sys.argv[1]), scanner={!r})"
KINETO = "from pathlib import Path\nfrom pinchpoint.importers import kineto"
UNPACK = """
buffer = bytearray(4 << 20)
with gzip.open(sys.argv[1]) as file:
    while file.readinto(buffer):
        pass"""
CPU_OF_READING = """
def peak():  # of this program alone; what getrusage says may be what started it
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
before, begin = peak(), time.process_time()
kineto.read(Path(sys.argv[1]))
print(time.process_time() - begin, peak() - before)
"""
HTA = """
folder, name = os.path.split(sys.argv[1])
trace = TraceAnalysis(trace_files={0: name}, trace_dir=folder)"""


@dataclass(frozen=True)
class Contender:
    """One way to read a trace."""

    name: str
    imports: str
    work: str
    python: str = sys.executable
    repeats: bool = True


@dataclass(frozen=True)
class Outcome:
    """The best of some runs, or why there is none."""

    seconds: float | None
    peak_bytes: int | None
    trouble: str = ""


def contenders(hta: str | None) -> list[Contender]:
    """What is compared."""
    found = [
        Contender("unpack only (gzip)", "import gzip", UNPACK),
        Contender("pinchpoint, native", KINETO, READ.format("native")),
        Contender("pinchpoint, plain", KINETO, READ.format("plain"), repeats=False),
        Contender(
            "json.load", "import gzip, json", "json.load(gzip.open(sys.argv[1]))", repeats=False
        ),
    ]
    if hta:
        imports = "import os\nfrom hta.trace_analysis import TraceAnalysis"
        found.append(Contender("HolisticTraceAnalysis", imports, HTA, hta, repeats=False))
    return found


def measure(contender: Contender, path: Path, repeats: int) -> Outcome:
    """Run a contender some times; the best time, and the memory of that run."""
    best = Outcome(None, None)
    for _ in range(repeats if contender.repeats else 1):
        outcome = run_once(contender, path)
        if outcome.seconds is None:
            return outcome
        if best.seconds is None or outcome.seconds < best.seconds:
            best = outcome
    return best


def run_once(contender: Contender, path: Path) -> Outcome:
    """One run in a fresh process."""
    program = TIMED.format(imports=contender.imports, work=contender.work)
    command = [contender.python, "-c", program, str(path)]
    with tempfile.TemporaryFile("w+") as out:
        env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=env)
        try:
            usage = wait(process)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return Outcome(None, None, f"stopped after {PATIENCE_S} s")
        if process.returncode:
            return Outcome(None, None, f"failed (exit status {process.returncode})")
        out.seek(0)
        seconds = float(out.read().split()[-1])
    return Outcome(seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def wait(process: subprocess.Popen[str]) -> resource.struct_rusage:
    """Wait for a process as long as patience lasts; what it used."""
    import signal

    def give_up(*_: object) -> None:
        raise subprocess.TimeoutExpired(process.args, PATIENCE_S)

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        signal.alarm(0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def report(results: list[tuple[Contender, Outcome]], text_bytes: int) -> None:
    """Print the table, and how the native reader stands to its limits."""
    outcomes = {contender.name: outcome for contender, outcome in results}
    unpacking = outcomes["unpack only (gzip)"].seconds
    print(f"{'':24}{'s':>8}{'MB/s':>8}{'x unpack':>10}{'peak MB':>10}{'x text':>8}")
    for name, outcome in outcomes.items():
        if outcome.seconds is None or outcome.peak_bytes is None or not unpacking:
            print(f"{name:24}{outcome.trouble}")
            continue
        rate, ratio = text_bytes / 1e6 / outcome.seconds, outcome.seconds / unpacking
        memory = outcome.peak_bytes / text_bytes
        print(
            f"{name:24}{outcome.seconds:8.2f}{rate:8.0f}{ratio:10.2f}"
            f"{outcome.peak_bytes / 1e6:10.0f}{memory:8.2f}"
        )
    native = outcomes["pinchpoint, native"]
    if text_bytes < LIMITS_FROM_BYTES:
        print(f"the limits hold from {LIMITS_FROM_BYTES / 1e6:.0f} MB on")
    elif native.seconds and native.peak_bytes and unpacking:
        say("time, of unpacking", native.seconds / unpacking, MOST_TIME_RATIO)
        say("memory, of the text", native.peak_bytes / text_bytes, MOST_MEMORY_RATIO)


def report_diagnose(path: Path, text_bytes: int, repeats: int) -> None:
    """Print how long ``pinchpoint diagnose`` takes from its start to its end."""
    command = [sys.executable, "-m", "pinchpoint", "diagnose", str(path)]
    took = []
    for _ in range(repeats + 1):  # the first may compile Python code
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took.append(time.perf_counter() - began)
    print(
        f"pinchpoint diagnose: median {statistics.median(took[1:]):.2f} s, best {min(took):.2f} s"
    )
    if text_bytes <= 1.02 * LIMIT_HOLDS_UP_TO_BYTES:
        say("seconds, of diagnose", statistics.median(took[1:]), MOST_DIAGNOSE_S)


def report_layouts(folder: Path, size: int, repeats: int) -> None:
    """Print what reading each layout takes: CPU time of both threads, and memory."""
    usual = None
    for name, path in trace_layouts.write(folder, size).items():
        program = f"import sys, time\n{KINETO}\n{CPU_OF_READING}"
        command = [sys.executable, "-c", program, str(path)]
        runs = [
            subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            for _ in range(repeats)
        ]
        seconds, peak = min(float(run[0]) for run in runs), min(int(run[1]) for run in runs)
        usual, text = usual or seconds, unpacked_size(path)
        print(f"{name}: {text / 1e6:.1f} MB of text, {text / 1e6 / seconds:.0f} MB a second of CPU")
        say("  times as long", seconds / usual, SLOWEST_LAYOUT)
        say("  memory, of the text", peak / text, MOST_LAYOUT_MEMORY)


def say(what: str, ratio: float, limit: float) -> None:
    """Print whether a limit is kept."""
    print(f"{what}: {ratio:.2f}, limit {limit}: {'kept' if ratio <= limit else 'NOT kept'}")


def machine() -> str:
    """The facts without which the figures mean nothing."""
    from pinchpoint.monitor.environment.host import cpu_model

    load = os.getloadavg()[0]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    packages = ", ".join(f"{name} {package_version(name)}" for name in ("numpy", "msgspec", "isal"))
    python = ".".join(map(str, sys.version_info[:3]))
    return f"{cpu_model()}, {cores} cores, load {load:.1f}; Python {python}, {packages}"


def package_version(name: str) -> str:
    """The version of a package, or that it is missing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def bytes_in(text: str) -> int:
    """``60M`` as a number."""
    units = {"K": 10**3, "M": 10**6, "G": 10**9}
    return int(float(text[:-1]) * units[text[-1].upper()]) if text[-1].isalpha() else int(text)


def unpacked_size(path: Path) -> int:
    """Bytes of text in a gzipped file."""
    buffer, size = bytearray(4 << 20), 0
    with gzip.open(path) as file:
        while count := file.readinto(buffer):
            size += count
    return size


def main() -> None:
    """Make or take a trace, and read it in every way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=bytes_in, default="500M", help="of the text, e.g. 60M, 2G")
    parser.add_argument("--file", type=Path, help="a gzipped trace, instead of a made-up one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--layouts", action="store_true", help="only these; --size 20M will do")
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.layouts:
            print(machine())
            report_layouts(Path(folder), options.size, options.repeats)
            return
        path = options.file or Path(folder) / "synthetic.json.gz"
        if options.file is None:
            synthetic_trace.write(path, options.size)
        size = unpacked_size(path)
        print(machine())
        print(f"{path.name}: {size / 1e6:.0f} MB of text in {path.stat().st_size / 1e6:.0f} MB")
        found = [(c, measure(c, path, options.repeats)) for c in contenders(options.hta)]
        report(found, size)
        report_diagnose(path, size, options.repeats)
        if not options.hta:
            print("HolisticTraceAnalysis: not measured; give --hta a Python that has it")


if __name__ == "__main__":
    main()
