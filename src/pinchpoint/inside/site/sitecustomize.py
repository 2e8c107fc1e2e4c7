"""Python imports this file at start-up because Pinchpoint put its folder on the path.

It starts the hooks in the program and in every Python process below it, then lets the
``sitecustomize`` that would have been imported otherwise run. It never fails. Python 3.8 and
later.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))
_INSIDE = os.path.dirname(_HERE)
_PACKAGE = os.path.dirname(_INSIDE)
_CAPTURE_NEEDS = (3, 11)


def _start():
    if "pinchpoint.inside" in sys.modules:
        return  # two installations are on the path; the other one was first
    try:
        _load("pinchpoint.inside", _INSIDE)
        for part in ("step_recorder", "knobs"):
            # An import statement would import "pinchpoint" itself, which need not be installed.
            importlib.import_module("pinchpoint.inside." + part).start()
    except Exception as error:
        # The program comes first: a recorder that cannot start is noted, and never in its way.
        sys.stderr.write("pinchpoint: steps are not recorded (%s)\n" % error)
    if os.environ.get("PINCHPOINT_HOOKS"):  # the settings of a capture name them
        try:
            _start_capture()
        except Exception as error:
            _leave_note(error)


def _start_capture():
    if sys.version_info < _CAPTURE_NEEDS:
        raise RuntimeError("the program's Python is too old for the hooks; they need 3.11")
    if importlib.util.find_spec("pinchpoint") is None:
        _load("pinchpoint", _PACKAGE)
    importlib.import_module(os.environ["PINCHPOINT_HOOKS"]).start()


def _load(name, folder):
    """Make a package importable without putting its neighbours on the program's path."""
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _leave_note(error):
    python = sys.version.split()[0]
    folder = os.path.join(os.environ["PINCHPOINT_RUN"], "processes")
    try:
        with open(os.path.join(folder, "failed.%d.txt" % os.getpid()), "w", encoding="utf-8") as f:
            f.write("%s: %s (Python %s)\n" % (type(error).__name__, error, python))
    except OSError:
        return


def _hand_on():
    """Run the next ``sitecustomize`` on the path, as Python would have."""
    rest = [p for p in sys.path if os.path.realpath(p or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start()
_hand_on()
