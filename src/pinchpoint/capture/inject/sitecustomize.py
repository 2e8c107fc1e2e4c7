"""Python imports this file at start-up because ``pinchpoint run`` put its folder on the path.

It starts the hooks in the program and in every Python process below it, then lets the
``sitecustomize`` that would have been imported otherwise run. It never fails.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _start_hooks() -> None:
    if not os.environ.get("PINCHPOINT_RUN"):
        return
    try:
        _find_pinchpoint()
        from pinchpoint.capture.program import start

        start()
    except Exception as error:  # the user's program comes first
        _leave_note(error)


def _find_pinchpoint() -> None:
    """Make ``pinchpoint`` importable without putting its neighbours on the program's path."""
    from importlib import util

    if util.find_spec("pinchpoint") is not None:
        return
    package = _HERE.parents[1]
    spec = util.spec_from_file_location(
        "pinchpoint", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        return
    module = util.module_from_spec(spec)
    sys.modules["pinchpoint"] = module
    spec.loader.exec_module(module)


def _leave_note(error: Exception) -> None:
    python = sys.version.split()[0]
    note = Path(os.environ["PINCHPOINT_RUN"], "processes", f"failed.{os.getpid()}.txt")
    with suppress(OSError):
        note.write_text(f"{type(error).__name__}: {error} (Python {python})\n", encoding="utf-8")


def _run_the_other_one() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    others = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start_hooks()
_run_the_other_one()
