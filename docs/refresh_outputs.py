"""Put what commands print into the pages that show it, between two markers.

.venv/bin/python docs/refresh_outputs.py [--check] [PAGE…]

A page has ``<!-- begin: pinchpoint diagnose tests/data/… -->`` above a block and ``<!-- end -->``
below. The command runs in the root of the repository; what stands after a ``|`` is left to the
shell. ``--check`` only compares, and names the pages that are out of date. A page is not out of
date because there are more rules than when it was written.
"""

import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr
from functools import cache
from pathlib import Path

from pinchpoint.cli import main as pinchpoint

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- begin: (pinchpoint .*?) -->\n)(.*?)(<!-- end -->\n)", re.S)
NOT_CHECKED = re.compile(r"^Not checked: .*?(?:\.$|(?=\n```))", re.M | re.S)


def pages() -> list[Path]:
    """The pages with such blocks."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in every if BLOCK.search(path.read_text("utf-8"))]


def refreshed(text: str) -> str:
    """The page as it should be."""
    return BLOCK.sub(lambda found: f"{found[1]}{_shown(found[2], found[3])}{found[4]}", text)


def _shown(command: str, old: str) -> str:
    new = _block(command)
    return old if _without_counts(old) == _without_counts(new) else new


def _without_counts(block: str) -> str:
    """Without how many causes were not checked, which every new rule changes."""
    return NOT_CHECKED.sub(lambda said: " ".join(re.sub(r"\d+", "N", said[0]).split()), block)


def _block(command: str) -> str:
    return f"```\n$ {command}\n{printed(command).rstrip()}\n```\n"


@cache
def printed(command: str) -> str:
    """What the command writes to standard output."""
    own, bar, rest = command.partition(" | ")
    words = shlex.split(own)[1:]
    if words == ["demo"]:
        words += ["--html", os.devnull]
    text = _run(words)
    if not bar:
        return text
    done = subprocess.run(rest, shell=True, input=text, capture_output=True, text=True, check=True)
    return done.stdout


def _run(words: list[str]) -> str:
    with _standard_output() as written, redirect_stderr(io.StringIO()):
        code = pinchpoint(words)
    if code:
        raise SystemExit(f"pinchpoint {shlex.join(words)} ended with {code}")
    return written.getvalue().decode()


@contextmanager
def _standard_output():
    written, before, here = io.BytesIO(), sys.stdout, Path.cwd()
    sys.stdout = io.TextIOWrapper(written, encoding="utf-8")
    os.chdir(ROOT)
    try:
        yield written
    finally:
        sys.stdout.flush()
        sys.stdout.detach()
        sys.stdout = before
        os.chdir(here)


def main(words: list[str]) -> int:
    """Rewrite or check the pages; 1 if a checked one is out of date."""
    chosen = [Path(w).resolve() for w in words if w != "--check"] or pages()
    old = {path: path.read_text("utf-8") for path in chosen}
    stale = {path: new for path, text in old.items() if (new := refreshed(text)) != text}
    for path, text in stale.items():
        if "--check" not in words:
            path.write_text(text, "utf-8")
        sys.stderr.write(f"{path}\n")
    return int("--check" in words and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
