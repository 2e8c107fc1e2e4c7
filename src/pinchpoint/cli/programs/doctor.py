"""What can be profiled on this machine, and what stands in the way."""

from typing import Annotated

from cyclopts import Parameter

from pinchpoint.capture.doctor import Check, examine
from pinchpoint.cli.output import show, show_plainly
from pinchpoint.report.plain import plain

_MARKS = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


def command(*, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Check drivers, frameworks, permissions and tools; say how to fix what is wrong.

    Exit code: 0, also if something is wrong: the answer is the text.

    Parameters
    ----------
    json
        One JSON document on standard output and nothing else.
    """
    checks = examine()
    if json:
        import json as text
        from dataclasses import asdict

        document = {"schema": "pinchpoint.doctor/1", "checks": [asdict(c) for c in checks]}
        show(text.dumps(document, indent=1) + "\n")
        return 0
    show_plainly("\n".join(_line(check) for check in checks) + "\n")
    return 0


def _line(check: Check) -> str:
    fix = f"\n        {'':22} -> {plain(check.fix)}" if check.fix else ""
    return f"{_MARKS[check.state]} {check.name:22} {plain(check.found)}{fix}"
