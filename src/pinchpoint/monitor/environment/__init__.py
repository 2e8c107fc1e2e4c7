"""The environment record: what a measurement depends on, and whether two may be compared.

>>> env = environment()
>>> fingerprint(env)[:8]
'3f0c…'

What cannot be read is null, and ``env["unknown"]`` says why, by path. Values of environment
variables are kept for a list of harmless names only; secrets are never written.
"""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pinchpoint.monitor.environment.comparability import (
    Difference,
    differences,
    fingerprint,
    full_fingerprint,
    refusals,
)
from pinchpoint.monitor.environment.facts import redacted_command, variables
from pinchpoint.monitor.environment.gpus import gpus
from pinchpoint.monitor.environment.host import host
from pinchpoint.monitor.environment.software import code_state, software_of, switches

__all__ = [
    "SCHEMA",
    "Difference",
    "differences",
    "environment",
    "fingerprint",
    "full_fingerprint",
    "redacted_command",
    "refusals",
]


SCHEMA = "pinchpoint.environment/1"


def environment(folder: Path | None = None, program: Sequence[str] = ()) -> dict[str, Any]:
    """Everything known about this machine and process, ready for JSON.

    ``folder`` is where the git state is read (default: the working directory). ``program`` is the
    command of a program: where it begins with another Python, ``software`` is of that. Every null
    has its reason in ``unknown``, keyed by path; a reason at a path covers what is below it.
    """
    sections = {
        "gpu": gpus(),
        "host": host(),
        "software": software_of(program),
        "switches": switches(),
        "code": code_state(folder or Path.cwd()),
    }
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "taken_utc": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    unknown: dict[str, str] = {}
    for name, (values, reasons) in sections.items():
        record[name] = values
        unknown |= reasons
    record["variables"] = variables(os.environ)
    record["unknown"] = unknown
    return record
