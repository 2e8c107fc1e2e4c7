"""What Pinchpoint pulls in, from the environment that it is installed in: licences, and a list.

python .ci/dependencies.py [--extra NAME ...] [--sbom FILE]

Exits with 1 where a licence is of no kind that is named below, or is not said. ``--sbom`` prints
all of them, and writes them as a CycloneDX document. No network is needed.
"""

import argparse
import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

OURSELVES = "pinchpoint"
# Licences that ask for no more than their text and notices, and MPL, which asks for that of its
# own files: what uses them stays free to have any licence.
FINE = re.compile(
    r"(apache|bsd|mit\b|mit-|isc|psf|python software foundation|python-2|zlib|0bsd|cc0|bsl-1"
    r"|mpl|mozilla public|cnri|hpnd|unlicense)",
    re.IGNORECASE,
)
_SAYS_NOTHING = ("unknown", "dual license")  # fields of packages whose classifiers say it
_LONGEST = 60  # what is longer is the text of a licence, whose first line names it


def main() -> int:
    """List, judge, write."""
    options = argparse.ArgumentParser()
    options.add_argument("--extra", action="append", default=[])
    options.add_argument("--sbom", type=Path)
    chosen = options.parse_args()
    found = collected(chosen.extra)
    poor = [d for d in found if not is_fine(licence(d))]
    for each in found if chosen.sbom else poor:
        print(f"{name(each):28} {each.version:16} {licence(each)}")
    print(f"{len(found)} distributions, {len(poor)} of them with a licence that is not allowed")
    if chosen.sbom is not None:
        chosen.sbom.parent.mkdir(parents=True, exist_ok=True)
        chosen.sbom.write_text(json.dumps(sbom(found), indent=1) + "\n", "utf-8")
    return 1 if poor or not found else 0


def collected(extras: list[str]) -> list[Distribution]:
    """All that is required, and what those require, by name; extras are Pinchpoint's own."""
    found: dict[str, Distribution] = {}
    left = [(OURSELVES, tuple(extras))]
    while left:
        wanted, chosen = left.pop()
        if wanted in found:
            continue
        try:
            found[wanted] = distribution(wanted)
        except PackageNotFoundError:  # a requirement for another system, or an extra not installed
            continue
        left += [(key(r), ()) for r in found[wanted].requires or () if _counts(r, chosen)]
    found.pop(OURSELVES, None)
    return [found[each] for each in sorted(found)]


def _counts(requirement: str, extras: tuple[str, ...]) -> bool:
    of_extra = re.search(r"""extra\s*==\s*["']([\w-]+)["']""", requirement)
    return of_extra is None or of_extra[1] in extras


def key(requirement: str) -> str:
    """The name in a requirement, as names are compared."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]).lower()


def name(found: Distribution) -> str:
    """As its makers write it."""
    return str(found.metadata["Name"])


def licence(found: Distribution) -> str:
    """The expression, the field or the classifiers of its metadata; empty where none says it."""
    about = found.metadata
    classified = [
        text.rpartition("::")[2].strip()
        for text in about.get_all("Classifier") or ()
        if text.startswith("License ::") and not text.endswith("approved")
    ]
    said = str(about.get("License-Expression") or about.get("License") or "").strip()
    told = said.lower() not in _SAYS_NOTHING or not classified
    if said and told and len(said) <= _LONGEST and "\n" not in said:
        return said
    return " AND ".join(classified) or said[:_LONGEST]


def is_fine(text: str) -> bool:
    """Whether each part of an expression is of a kind that is allowed; of alternatives one."""
    parts = re.split(r"\s+AND\s+|\s*;\s*", text.replace("(", "").replace(")", ""))
    return all(any(map(FINE.search, re.split(r"\s+OR\s+", part))) for part in parts)


def sbom(found: list[Distribution]) -> dict[str, object]:
    """CycloneDX 1.6, with what the metadata says."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(distribution(OURSELVES), "application")},
        "components": [_component(each, "library") for each in found],
    }


def _component(found: Distribution, kind: str) -> dict[str, object]:
    return {
        "type": kind,
        "name": name(found),
        "version": found.version,
        "purl": f"pkg:pypi/{key(name(found))}@{found.version}",
        "licenses": [{"license": {"name": licence(found)}}],
    }


if __name__ == "__main__":
    sys.exit(main())
