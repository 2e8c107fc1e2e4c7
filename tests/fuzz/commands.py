"""Every command that takes a file is given everything that is no good file.

    python tests/fuzz/commands.py [--few] [--each N] [--seed 1] [COMMAND ...]

Which commands take files, and where, is asked of the command line itself. Each attack is a process
of its own, forked from this one, in a folder of its own. Afterwards: an exit code that is
documented, no traceback and no warning, at most 10 s of CPU and 300 MB, every input as it was, no
process and no temporary file left. What failed is printed; 1 if anything did. ``--each`` gives each
place so many inputs, chosen by the seed; ``--few`` one, where no program is started.
"""

import argparse
import atexit
import contextlib
import json
import os
import random
import resource
import shlex
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads do not outlive a fork
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from fuzz import hostile  # noqa: E402
from fuzz.mutators import as_bytes, odd_values  # noqa: E402
from fuzz.samples import samples, trace  # noqa: E402
from pinchpoint.cli.dispatch import app_of, main  # noqa: E402
from pinchpoint.cli.help import commands  # noqa: E402

CODES = range(6)  # pass to "measurement invalid"; see ``pinchpoint --help``
CPU_S, LARGEST_BYTES, FILE_TIMES = 10, 300 << 20, 10
WAITED_S = 60  # with hardly any CPU: it waits for what never comes
SERVED_S = 1.5  # a server that has come so far serves
INTERRUPTED = 130
MUTANTS_OF_OWN = 12  # of each document that Pinchpoint itself has written
PROGRAM = ["--", sys.executable, "-c", "pass"]
# What a command cannot do without, and what makes it short. A new command with something else
# that it needs is a failure here until that is said.
NEEDS: dict[str, list[str]] = {
    "attach": ["1"],
    "bench bisect": ["--good", "HEAD", *PROGRAM],
    "bench run": ["--processes", "1", *PROGRAM],
    "bench ab": ["--pairs", "2", "--", "true", "true"],
    "bench calibrate": ["--pairs", "2", *PROGRAM],
    "bench check": ["--processes", "1", *PROGRAM],
    "bench op": ["1"],
    "bench serve": ["--requests", "1", "--num-warmups", "0"],
    "ceilings": ["--device", "cpu", "--no-store", "--sustained", "0", "--dtypes", "fp32"],
    "completion": ["bash"],
    "crossover": ["add", "--most", "1000"],
    "export": ["--to", "speedscope"],
    "monitor": ["--seconds", "0.2", "--interval", "0.1", "--no-counters"],
    "ncu": PROGRAM,
    "note": ["a note"],
    "open": ["--no-browser", "--wait", "0.1"],
    "ranks --output": ["--shard", "1/1"],
    "run": PROGRAM,
    "serve": ["--port", "0"],
    "sql": ["SELECT 1"],
    "try": ["--pairs", "1", *PROGRAM],
}
OUTPUTS = ("--output", "--out", "--html", "--junit", "--parquet", "--svg", "--log", "--prometheus")
OUTPUTS += ("--ledger",)
# These take seconds each, and are given a tenth.
RUNS_A_PROGRAM = ("run", "ncu", "try", "monitor", "ceilings", "crossover", "demo")
RUNS_A_PROGRAM += tuple(f"bench {name}" for name in ("run", "ab", "serve", "calibrate", "bisect"))
FOLDERS_AND_MANY = ("PLACE", "PLACES", "URL", "RULE", "FINDING")  # of text, and yet a place


@dataclass(frozen=True)
class Place:
    """Where a command takes a file: the words before it, and those that must follow."""

    command: str
    name: str
    before: list[str]
    after: list[str]

    @property
    def is_output(self) -> bool:
        """Whether something is written there."""
        return self.name in OUTPUTS


@dataclass
class Tally:
    """What came of it."""

    codes: Counter[int] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    largest: tuple[int, str] = (0, "")


def places(good: dict[str, str]) -> Iterator[Place]:
    """Every place of every command where the name of a file may stand."""
    for name in commands():
        app = app_of(name)
        subcommands = [s for s in app if not s.startswith("-")]
        for words in ([name], *([name, s] for s in subcommands)):
            own = app if len(words) == 1 else app[words[1]]
            if own.default_command is not None:
                yield from _places_of(words, own.assemble_argument_collection(), good)


def _places_of(words: list[str], arguments: Any, good: dict[str, str]) -> Iterator[Place]:
    command = " ".join(words)
    given = [a for a in arguments if _is_file(a)]
    for taken in given:
        others: list[str] = []
        at = 0
        for other in given:
            held = good.get(f"{command} {other.names[0]}") or _good(other.names[0], good)
            positional = not other.names[0].startswith("-")
            if other is taken:
                at = len(others) if positional else at
            elif positional and other.names[0] != "FINDING":
                others.append(held)
            elif other.required and not positional:
                others += [other.names[0], held]
        name = taken.names[0]
        needs = NEEDS.get(f"{command} {name}", NEEDS.get(command, []))
        if name.startswith("-"):
            yield Place(command, name, [*words, *others, name], needs)
        else:
            yield Place(command, name, [*words, *others[:at]], [*others[at:], *needs])


def _is_file(argument: Any) -> bool:
    name = argument.names[0]
    return "Path" in str(argument.hint) or name in FOLDERS_AND_MANY


def _good(name: str, good: dict[str, str]) -> str:
    if name in OUTPUTS:
        return "out"
    return good.get(name, good["FILE"])


def attack(place: Place, word: str, scratch: Path) -> tuple[int, str, Any, bool]:
    """Exit code, what was said on standard error, what was used, and whether it had to be ended."""
    with (scratch / "said").open("wb") as said:
        child = os.fork()
        if child == 0:
            _in_child(place, word, scratch, said.fileno())
        status, used, ended = _waited(child, 0.0 if place.command == "serve" else None)
    text = (scratch / "said").read_bytes().decode("utf-8", "replace")
    return os.waitstatus_to_exitcode(status), text, used, ended


def _in_child(place: Place, word: str, scratch: Path, said: int) -> None:
    code = 71
    try:
        os.setsid()
        os.chdir(scratch / "here")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(said, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (3 * CPU_S, 3 * CPU_S + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))
        os.environ |= {n: str(scratch / n) for n in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
        tempfile.tempdir = str(scratch / "TMPDIR")
        code = main([*place.before, word, *place.after])
        sys.stdout.flush()
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        os._exit(code)


def _waited(child: int, serving: float | None) -> tuple[int, Any, bool]:
    """A server is asked to end once it serves; whatever waits for ever is ended, and that said."""
    began = time.monotonic()
    ended = False
    while True:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            return status, used, ended
        lasted = time.monotonic() - began
        if serving is not None and lasted > SERVED_S:
            os.kill(child, signal.SIGINT)
            serving = None
        if lasted > WAITED_S and not ended:
            ended = True
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002 if lasted < 1 else 0.05)


def judged(place: Place, what: str, word: str, scratch: Path, tally: Tally) -> list[str]:
    """What is wrong with an attack's end."""
    for name in ("here", "HOME", "TMPDIR", "XDG_CACHE_HOME"):
        shutil.rmtree(scratch / name, ignore_errors=True)
        (scratch / name).mkdir()
    code, said, used, ended = attack(place, word, scratch)
    cpu_s, peak = used.ru_utime + used.ru_stime, used.ru_maxrss << 10
    label = f"{place.command} {place.name} <- {what}"
    tally.codes[code] += 1
    tally.slowest = max(tally.slowest, (cpu_s, label))
    tally.largest = max(tally.largest, (peak, label))
    wrong = []
    if code not in CODES and not (place.command == "serve" and code == INTERRUPTED):
        wrong.append(f"exit code {code}")
    wrong += ["words that it does not know"] * ("Unknown option" in said and word[:1] != "-")
    wrong += [w for w in ("Traceback", "internal error", "Warning:") if w in said]
    wrong += [f"waits for ever ({WAITED_S} s)"] * ended
    if cpu_s > CPU_S:
        wrong.append(f"{cpu_s:.1f} s of CPU")
    measures = place.command in ("ceilings", "crossover")  # with torch, and memory itself
    if peak > max(LARGEST_BYTES, FILE_TIMES * _bytes(word)) and not measures:
        wrong.append(f"{peak >> 20} MB")
    wrong += [f"left {left}" for left in _left(scratch)]
    if code == 2 and not said.strip():
        wrong.append("refused without a word")
    return [f"{label}: {'; '.join(wrong)}: {' '.join(said.split())[-200:]}"] if wrong else []


def _bytes(word: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return Path(word).stat().st_size
    return 0


def _left(scratch: Path) -> Iterator[str]:
    """Temporary files, and processes whose parent has gone: these are ours then."""
    for path in (scratch / "TMPDIR").iterdir():
        if path.name.startswith(("pinchpoint-bench-", "torchinductor_")):
            continue  # the lock of all who measure, and what torch keeps
        yield f"{path.name} where temporary files are"
    for path in (scratch / "here").rglob(".pinchpoint-*"):
        yield path.name
    until = time.monotonic() + 2
    while (orphans := _children()) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in orphans:
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            yield f"process {line[:80]!r}"


def _children() -> list[int]:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in found]


def state(folder: Path) -> dict[str, tuple[int, ...]]:
    """What stands below a folder; whatever is written to has another time of change."""
    found = {}
    for home, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(home, name)  # noqa: PTH118 - names that are no unicode
            status = os.lstat(path)
            is_folder = stat.S_ISDIR(status.st_mode)  # its own times are those of what is in it
            when = 0 if is_folder else status.st_ctime_ns
            found[path] = (status.st_mode, 0 if is_folder else status.st_size, when)
    return found


def own_documents(folder: Path, good: dict[str, str], rng: random.Random) -> dict[str, str]:
    """What Pinchpoint has written itself and reads again, whole and damaged."""
    folder.mkdir()
    file, here = good["FILE"], Path.cwd()
    os.chdir(folder)
    made = {}
    try:
        for name, words in {
            "part": ["ranks", file, "--shard", "1/1", "-o", "part.json"],
            "bench": ["bench", "run", "--processes", "1", "-o", "bench", *PROGRAM],
            "run": ["run", "-o", "run", *PROGRAM],
        }.items():
            _quietly(words)
            made[name] = folder / name
        for name in ("diagnose", "memory", "roofline", "causal", "kernels"):
            words = [name, good.get(f"{name} FILE", file), "--json"]
            _quietly(words, folder / f"{name}.json")
        for path in sorted(folder.rglob("*.json")):
            with contextlib.suppress(ValueError, OSError):
                document = json.loads(path.read_bytes())
                for at in range(MUTANTS_OF_OWN):
                    mutant = folder / f"mutant-{path.stem}-{at}.json"
                    mutant.write_bytes(as_bytes(odd_values(document, rng)))
    finally:
        os.chdir(here)
    return {f"own {p.name}": str(p) for p in sorted(folder.iterdir())}


def _quietly(words: list[str], answer: Path = Path(os.devnull)) -> None:
    child = os.fork()
    if child == 0:
        os.dup2(os.open(answer, os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        code = 1
        try:
            code = main(words)
            sys.stdout.flush()
        finally:
            os._exit(code)
    os.waitpid(child, 0)


def run(few: bool, each: int, seed: int, only: list[str]) -> int:
    """All attacks; prints what failed and what was needed most."""
    _adopt_orphans()
    rng, tally = random.Random(seed), Tally()
    home = Path(tempfile.mkdtemp(prefix="attack-"))  # no finalizer that forked ones would run
    try:
        (scratch := home / "scratch").mkdir()
        (home / "inputs").mkdir()
        (home / "good").mkdir()
        good = good_files(home / "good")
        inputs = hostile.hostile(home / "inputs")
        if not few:
            inputs |= own_documents(home / "inputs/own", good, rng)
        targets = hostile.outputs(home / "inputs/outputs")
        before = state(home / "inputs")
        chosen = [p for p in places(good) if not only or p.command in only]
        if few:
            chosen = [p for p in chosen if not p.command.startswith(RUNS_A_PROGRAM)]
        for place in chosen:
            words = targets if place.is_output else inputs
            most = max(each // 10, 1) if place.command.startswith(RUNS_A_PROGRAM) else each
            for what, word in rng.sample(list(words.items()), min(most, len(words))):
                found = judged(place, what, word, scratch, tally)
                after = state(home / "inputs")
                changed = [p for p in before | after if before.get(p) != after.get(p)]
                changed = [p for p in changed if not _may_change(place, p, before)]
                found += [f"{place.command} {place.name} <- {what}: changed {c}" for c in changed]
                before = after
                tally.failed += found
                for line in found:
                    print("FAILED", line.encode("ascii", "backslashreplace").decode(), flush=True)
            print(f"{place.command} {place.name}: {sum(tally.codes.values()):,}", flush=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    _tell(tally, len(chosen), len(inputs) + len(targets))
    return 1 if tally.failed else 0


def good_files(folder: Path) -> dict[str, str]:
    file, data = folder / "good.json", ROOT / "tests/data"
    file.write_text(trace())
    (folder / "runs").mkdir()
    shutil.copy(file, folder / "runs/rank0.json")
    memory = folder / "memory.pickle.gz"
    shutil.copy(data / "memory/leak_graph.pickle.gz", memory)
    runs = {name: str(folder / "runs") for name in ("PLACE", "PLACES", "FOLDER", "ROOT")}
    part = folder / "part.json"
    _quietly(["ranks", str(folder / "runs"), "--shard", "1/1", "-o", str(part)])
    for name, raw in samples()["run folder"].files.items():
        (folder / "fleet" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "fleet" / name).write_bytes(raw)
    runs["PLACE"] = str(folder / "fleet")
    own = {"memory FILE": str(memory), "merge PARTS": str(part), "URL": "http://127.0.0.1:9/v1"}
    return {"FILE": str(file), **own, **runs}


def _may_change(place: Place, path: str, before: dict[str, tuple[int, ...]]) -> bool:
    """A new file where an output was asked for, or notes beside a recording."""
    return path not in before and (place.is_output or place.command == "note")


def _adopt_orphans() -> None:
    import ctypes

    pr_set_child_subreaper = 36  # <linux/prctl.h>
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _tell(tally: Tally, chosen: int, inputs: int) -> None:
    print(f"{sum(tally.codes.values()):,} attacks on {chosen} places with {inputs} inputs")
    print("exit codes:", ", ".join(f"{c}: {n:,}" for c, n in sorted(tally.codes.items())))
    print(f"most CPU: {tally.slowest[0]:.2f} s, {shlex.quote(tally.slowest[1])}")
    print(f"most memory: {tally.largest[0] >> 20} MB, {shlex.quote(tally.largest[1])}")
    print(f"{len(tally.failed):,} failures")


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--few", action="store_true")
    options.add_argument("--each", type=int, default=10**6, help="inputs of each place")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("commands", nargs="*", help="such as diagnose or 'bench check'")
    asked = options.parse_args()
    sys.exit(run(asked.few, 1 if asked.few else asked.each, asked.seed, asked.commands))
