"""The environment record: what a measurement depends on, and whether two may be compared.

>>> env = environment()
>>> fingerprint(env)[:8]
'3f0c…'

What cannot be read is null, and ``env["unknown"]`` says why, by path. Values of environment
variables are kept for a list of harmless names only; secrets are never written.
"""

from pinchpoint.monitor.environment.comparability import (
    Difference,
    differences,
    fingerprint,
    full_fingerprint,
    refusals,
)
from pinchpoint.monitor.environment.record import SCHEMA, environment
from pinchpoint.monitor.environment.variables import redacted_command

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
