"""Pins and hashes of all that development needs: python .ci/lock.py [--fresh]; or ./run lock.

What pip would install for this Python on this machine goes into ``.ci/requirements.txt``, with the
hash of each file. Run by another Python, or on another machine, it adds the hashes of the files
that this one takes of the same versions; ``--fresh`` forgets what was there, and takes the newest.
``CI=true ./run`` installs from it, and refuses a file whose hash is not in it.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / ".ci/requirements.txt"
HEAD = "# Written by ./run lock: versions, and the hashes of the files that may be installed.\n"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.M)
Pins = dict[tuple[str, str], set[str]]  # hashes of the files of a name and version


def main() -> int:
    """Write the file anew; 1 where pip finds no solution."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--fresh", action="store_true")
    known = {} if options.parse_args().fresh else pins(LOCK.read_text("utf-8"))
    found = taken(known)
    if found is None:
        return 1
    for pin, hashes in found.items():
        known.setdefault(pin, set()).update(hashes)
    whole = LOCK.with_name(f"{LOCK.name}.tmp")  # a part of a lock would be taken for the lock
    whole.write_text(written(known), "utf-8")
    whole.replace(LOCK)
    print(f"{LOCK.relative_to(ROOT)}: {len(known)} packages, {sum(map(len, known.values()))} files")
    return 0


def pins(text: str) -> Pins:
    """What a file of requirements pins."""
    return {
        (name, version): set(re.findall(r"sha256:([0-9a-f]{64})", hashes))
        for name, version, hashes in _PIN.findall(text)
    }


def written(known: Pins) -> str:
    """The text of such a file."""
    lines = [HEAD]
    for (name, version), hashes in sorted(known.items()):
        each = "".join(f" \\\n    --hash=sha256:{value}" for value in sorted(hashes))
        lines.append(f"{name}=={version}{each}\n")
    return "".join(lines)


def wanted() -> list[str]:
    """Requirements of Pinchpoint, of its development, and of building it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    return [
        *project["project"]["dependencies"],
        *extras["dev"],
        *project["build-system"]["requires"],
    ]


def taken(known: Pins) -> Pins | None:
    """What pip would install here, of the versions that are known; None if it cannot."""
    with tempfile.TemporaryDirectory() as folder:
        limits, report = Path(folder) / "limits.txt", Path(folder) / "report.json"
        limits.write_text("".join(f"{name}=={version}\n" for name, version in known))
        words = ["install", "-q", "--disable-pip-version-check", "--dry-run", "--ignore-installed"]
        words += ["--only-binary", ":all:", "--constraint", str(limits), "--report", str(report)]
        if subprocess.run([sys.executable, "-m", "pip", *words, *wanted()], check=False).returncode:
            return None
        installed = json.loads(report.read_text("utf-8"))["install"]
    return {
        (item["metadata"]["name"].lower().replace("_", "-"), item["metadata"]["version"]): {
            item["download_info"]["archive_info"]["hashes"]["sha256"]
        }
        for item in installed
    }


if __name__ == "__main__":
    sys.exit(main())
