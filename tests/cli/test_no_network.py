"""No command reaches for a network unasked: every attempt is an audit event of Python."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "src/pinchpoint/data/item_sync.json.gz"
SNAPSHOT = ROOT / "tests/data/memory/eval_nograd.pickle.gz"
RANKS = ROOT / "tests/data/ranks"
WATCHED = """
import sys
from pinchpoint.cli import main
attempts = []
def hook(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        if len(args) < 2 or not isinstance(args[1], (str, bytes)):  # a path: this machine's own
            attempts.append((words, event))
words = []
sys.addaudithook(hook)
for line in sys.stdin.read().splitlines():
    words = line.split("\\t")
    if (code := main(list(words))) not in (0, 1):
        print("FAILED", words, code, file=sys.stderr)
print("ATTEMPTS", attempts, file=sys.stderr)
"""
COMMANDS = [
    ["demo"],
    ["diagnose", str(SAMPLE), "--html", "d.html"],
    ["report", str(SAMPLE), "-o", "r.html"],
    ["compare", str(SAMPLE), str(SAMPLE), "--html", "c.html"],
    *(["export", str(SAMPLE), "--to", to, "-o", to] for to in ("chrome", "sarif", "otlp", "csv")),
    ["memory", str(SNAPSHOT), "--html", "m.html"],
    ["ranks", str(RANKS / "even.rank0.json.gz"), str(RANKS / "even.rank1.json.gz")],
    *([name, str(SAMPLE)] for name in ("kernels", "roofline", "causal", "show")),
    *(["explain", "launch-bound"], ["formats"], ["skill"], ["monitor", "--once"]),
    ["run", "-o", "run", "--", sys.executable, "-c", "pass"],
]


def test_nothing_is_asked_of_a_network(tmp_path):
    alone = [shutil.which("unshare") or "", "--net"]
    if not alone[0] or subprocess.run([*alone, "true"], capture_output=True).returncode:
        alone = []  # not permitted here: attempts are seen all the same
    done = subprocess.run(
        [*alone, sys.executable, "-c", WATCHED],
        input="\n".join("\t".join(words) for words in COMMANDS),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert [line for line in said if line.startswith("FAILED")] == []
    assert said[-1] == "ATTEMPTS []"
