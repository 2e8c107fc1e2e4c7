"""Starts the step recorder, then the ``sitecustomize`` that would have run without it."""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _hand_on() -> None:
    """Run the next ``sitecustomize`` on the path, as Python would have."""
    rest = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    import pinchpoint_knobs
    import pinchpoint_step_recorder

    pinchpoint_step_recorder.start()
    pinchpoint_knobs.start()
except Exception as error:
    # The program comes first: a recorder that cannot start is noted, and never in its way.
    sys.stderr.write(f"pinchpoint: steps are not recorded ({error})\n")
_hand_on()
