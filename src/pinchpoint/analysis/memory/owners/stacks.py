"""What a call stack says about an allocation: which part of a training step made it, and where.

Only the layout of PyTorch's own source and the names of its C++ functions are used; nothing about
the program that was recorded.
"""

import re
from collections import Counter
from enum import IntFlag
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Frame, Stacks
from pinchpoint.trace.arrays import Mask


class Sign(IntFlag):
    """What the frames of a stack show."""

    PYTHON = 1  # at least one Python frame
    ENGINE = 2  # the autograd engine, or a call that is waiting for it
    OPTIMIZER = 4  # torch.optim
    STATE = 8  # where torch.optim creates its state
    ZERO_GRAD = 16
    MODULE_CALL = 32  # a module's forward
    MOVE = 64  # Module.to, .cuda, .half: parameters and buffers get new memory
    BUILD = 128  # the constructor of a module of torch.nn
    CHECKPOINT = 256
    WORKSPACE = 512  # scratch memory of cuBLAS, cuBLASLt, cuDNN
    CLIP = 1024  # gradient clipping
    EMPTY_CACHE = 2048
    GRAPH_CAPTURE = 4096
    LOSS = 8192  # a loss function of torch.nn.functional
    OPERATOR = 16384  # an operator of a profiler trace, which has no C++ frames


OPERATOR_FILE = "operator"  # stands for the file in frames that are operators of a trace

_TORCH = regex(
    r"(?:^|/)torch/(?:__init__|_[a-z]\w*|amp|ao|autograd|compiler|cuda|distributed|fx|func|functional|jit"
    r"|library|masked|nested|nn|onnx|ops|optim|overrides|profiler|random|serialization|storage"
    r"|utils|xpu)(?:/|\.py$)"
)
_STANDARD = regex(
    r"(?:^|/)lib(?:64)?/python3\.\d+/(?!site-packages|dist-packages)|^<frozen |(?:^|/)runpy\.py$"
)
_WORKSPACE = regex(r"[Ww]orkspace|getCurrentCUDABlasHandle|getCurrentCuDNNHandle")
_ENGINE = regex(r"torch::autograd::(?:python::Python)?Engine\b")
_BACKWARD_NODE = regex(r"Backward\d*$|AccumulateGrad")
_LOSSES = regex(r"cross_entropy|nll_loss|kl_div|_loss$|loss_with_logits|^log_softmax")
_PYTHON_FILE = regex(r"\.pyx?$|^<|^\[|^/.*/[^.]*$")


def _sign(frame: Frame) -> Sign:
    path = frame.file.replace("\\", "/")
    if frame.file == OPERATOR_FILE:
        return Sign.OPERATOR | _sign_of_operator(frame.function)
    if not is_python(frame):
        return _sign_of_symbol(frame.function)
    sign = Sign.PYTHON
    where = _TORCH.search(path)
    if not where:
        return sign
    inside = path[where.start() :].lstrip("/")
    return sign | _sign_of_library(inside, frame.function)


def _sign_of_operator(name: str) -> Sign:
    if name.startswith("Optimizer.step#"):
        return Sign.OPTIMIZER
    if name.startswith("Optimizer.zero_grad#"):
        return Sign.ZERO_GRAD
    return Sign.ENGINE if _BACKWARD_NODE.search(name) else _sign_of_symbol(name)


def _sign_of_symbol(function: str) -> Sign:
    sign = Sign(0)
    if _ENGINE.search(function):
        sign |= Sign.ENGINE
    if _WORKSPACE.search(function):
        sign |= Sign.WORKSPACE
    if "emptyCache" in function:
        sign |= Sign.EMPTY_CACHE
    return sign


_ENGINE_CALLS = {
    ("torch/autograd/graph.py", "_engine_run_backward"),
    ("torch/autograd/__init__.py", "backward"),
    ("torch/autograd/__init__.py", "grad"),
    ("torch/autograd/__init__.py", "_make_grads"),
    ("torch/_tensor.py", "backward"),
}
_EXACT = {
    ("torch/nn/modules/module.py", "_call_impl"): Sign.MODULE_CALL,
    ("torch/nn/modules/module.py", "_wrapped_call_impl"): Sign.MODULE_CALL,
    ("torch/nn/modules/module.py", "_apply"): Sign.MOVE,
    ("torch/nn/modules/module.py", "zero_grad"): Sign.ZERO_GRAD,
    ("torch/cuda/memory.py", "empty_cache"): Sign.EMPTY_CACHE,
    ("torch/accelerator/memory.py", "empty_cache"): Sign.EMPTY_CACHE,
}


def _sign_of_library(path: str, function: str) -> Sign:
    if (path, function) in _ENGINE_CALLS:
        return Sign.ENGINE
    if path.startswith("torch/optim/"):
        if function == "zero_grad":
            return Sign.ZERO_GRAD
        return Sign.OPTIMIZER | (Sign.STATE if function == "_init_group" else Sign(0))
    if path == "torch/utils/checkpoint.py":
        return Sign.CHECKPOINT
    if path == "torch/nn/utils/clip_grad.py":
        return Sign.CLIP
    if path == "torch/cuda/graphs.py":
        return Sign.GRAPH_CAPTURE
    if path == "torch/nn/functional.py" and _LOSSES.search(function):
        return Sign.LOSS
    if path.startswith("torch/nn/") and function in ("__init__", "reset_parameters"):
        return Sign.BUILD
    return _EXACT.get((path, function), Sign(0))


def is_python(frame: Frame) -> bool:
    """Whether a frame is a line of Python; C++ frames have no line or no Python file."""
    return frame.line > 0 and bool(_PYTHON_FILE.search(frame.file))


def is_library(frame: Frame) -> bool:
    """Whether a Python frame belongs to PyTorch or to Python's own library."""
    path = frame.file.replace("\\", "/")
    return bool(_TORCH.search(path) or _STANDARD.search(path))


@dataclass(frozen=True, eq=False)
class StackSigns:
    """The signs of every stack, and where in the program each leads."""

    stacks: Stacks
    sign: NDArray[np.int32]  # shape (stacks,)
    root: NDArray[np.int32]  # outermost Python frame, -1 without one

    @cached_property
    def other_thread(self) -> Mask:
        """Stacks whose Python part begins inside PyTorch: C++ called back into Python, which in
        training is the autograd thread (hooks, custom functions, checkpointing)."""
        inside = np.array([bool(_TORCH.search(f.file)) for f in self.stacks.frames] + [False])
        result: Mask = inside[self.root] & (self.root >= 0)
        return result

    def has(self, sign: Sign) -> Mask:
        """Stacks that show any of the signs."""
        result: Mask = (self.sign & int(sign)) != 0
        return result

    def user_frames(self, stack: int) -> tuple[Frame, ...]:
        """The frames of the program itself, innermost first."""
        return tuple(f for f in self.stacks[stack] if is_python(f) and not is_library(f))

    def location(self, stack: int) -> Frame | None:
        """The innermost line of the program; of a library if there is none."""
        own = self.user_frames(stack)
        if own:
            return own[0]
        python = [f for f in self.stacks[stack] if is_python(f)]
        return python[0] if python else None

    def operation(self, stack: int) -> str | None:
        """The innermost library function below the program's line: ``layer_norm``, ``Linear``."""
        for frame in self.stacks[stack]:
            if not is_python(frame):
                continue
            if not is_library(frame):
                return None
            path = frame.file.replace("\\", "/")
            if "torch/nn/modules/" in path and frame.function == "forward":
                return f"nn.{path.rsplit('/', 1)[1].removesuffix('.py')}"
            if frame.function not in ("_call_impl", "_wrapped_call_impl"):
                return frame.function
        return self._backward_node(stack)

    def _backward_node(self, stack: int) -> str | None:
        for frame in self.stacks[stack]:
            found = re.search(r"(\w+Backward\d*)(?:::apply|_apply_functional)", frame.function)
            if found:
                return found[1]
        return None


def stack_signs(stacks: Stacks) -> StackSigns:
    """Read the signs of all stacks; vectorised over frames."""
    of_frame = np.array([int(_sign(f)) for f in stacks.frames], np.int32)
    count = len(stacks)
    sign = np.zeros(count, np.int32)
    root = np.full(count, -1, np.int32)
    filled = np.flatnonzero(np.diff(stacks.offset))
    if len(filled):
        flat = of_frame[stacks.frame]
        sign[filled] = np.bitwise_or.reduceat(flat, stacks.offset[filled])
        owner = np.repeat(np.arange(count), np.diff(stacks.offset))
        python = np.flatnonzero(flat & int(Sign.PYTHON))
        root[owner[python]] = stacks.frame[python]  # the last one written is the outermost
    return StackSigns(stacks, sign, root)


def common_root(signs: StackSigns, stack_of_event: NDArray[np.int32]) -> int:
    """The outermost frame that most events of modules and optimizers share: the main thread."""
    useful = signs.has(Sign.MODULE_CALL | Sign.OPTIMIZER | Sign.MOVE) & ~signs.other_thread
    counts = Counter(signs.root[stack_of_event[useful[stack_of_event]]].tolist())
    counts.pop(-1, None)
    return counts.most_common(1)[0][0] if counts else -1
