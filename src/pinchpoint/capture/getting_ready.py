"""Whether the program is still getting ready: importing, compiling, or before its first step.

A recording made then shows work that is done once and no kernels of the steps that follow.
"""

import sys
import threading

from pinchpoint.capture.policy import compile_count

_IMPORTING = "<frozen importlib._bootstrap>"
# Files whose functions run only while something is compiled, and functions in files that run at
# other times too.
_COMPILING_FILES = (
    "torch/_dynamo/convert_frame.py",
    "torch/_inductor/async_compile.py",
    "triton/compiler/compiler.py",
    "jax/_src/compiler.py",
)
_COMPILING_FUNCTIONS = {
    "torch/_inductor/compile_fx.py": "compile",
    "torch/_inductor/runtime/triton_heuristics.py": "autotune_to_one_config",
}


def imports() -> bool:
    """Whether the main thread is importing: the program has not come to its work yet."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


def compiles() -> bool:
    """Whether any thread compiles for torch.compile, triton or jax right now."""
    for top in sys._current_frames().values():
        frame = top
        while frame is not None:
            if _is_compiling(frame.f_code.co_filename, frame.f_code.co_name):
                return True
            frame = frame.f_back  # type: ignore[assignment]
    return False


def _is_compiling(filename: str, function: str) -> bool:
    if filename.endswith(_COMPILING_FILES):
        return function != "<module>"
    for ending, part in _COMPILING_FUNCTIONS.items():
        if filename.endswith(ending) and part in function:
            return True
    return False


class CompileWatch:
    """Tells whether anything was compiled since it was last asked."""

    def __init__(self) -> None:
        self._count = compile_count()

    def busy(self) -> bool:
        """Whether something is being compiled, or was since the last question."""
        count = compile_count()
        changed, self._count = count != self._count, count
        return changed or compiles()


def optimizer_exists() -> bool:
    """Whether the program has made a torch optimizer, whose steps are then to be expected.

    torch wraps the ``step`` of a class at the first instance and marks it as ``hooked``.
    """
    module = sys.modules.get("torch.optim.optimizer")
    base = getattr(module, "Optimizer", None)
    kinds = [base] if base is not None else []
    while kinds:
        kind = kinds.pop()
        if getattr(getattr(kind, "step", None), "hooked", False):
            return True
        kinds += kind.__subclasses__()
    return False
