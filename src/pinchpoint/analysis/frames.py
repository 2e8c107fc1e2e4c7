"""Python frames in host rows: where in the program something happened, and whose program it is.

PyTorch's tracer writes a frame as ``file(line): function``; the file is relative to the import path
it was found on. The line is where the function begins, not that of the call inside it; only frames
that were running when recording began show the line they were at.
"""

import re
import sys
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np

from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Codes, Mask


class Owner(IntEnum):
    """Whose code a frame is: nearest to the reader first."""

    USER = 1  # the program itself
    LIBRARY = 2  # an installed package, such as a model library
    FRAMEWORK = 3  # torch and the like, numeric packages, Python's own library


@dataclass(frozen=True)
class Frame:
    """A Python function."""

    file: str
    line: int
    function: str

    @property
    def owner(self) -> Owner:
        """Whose code it is, judged by the path."""
        return owner_of(self.file)


_FRAME = re.compile(r"(?P<file>[^\n]+?)\((?P<line>\d{1,9})\): (?P<function>[^\n]*)")
_PACKAGE = re.compile(r"(?:site|dist)-packages/([^/]+)")
_GENERATED = re.compile(r"/torchinductor_[^/]*/")  # written by a compiler
_PYTHON_HOME = re.compile(r"(?:^|/)lib(?:64)?/python\d[\d.]*/")

# Of these a reader wants to know what called them, not where inside they were.
_FRAMEWORKS = frozenset(
    {"torch", "torchgen", "functorch", "triton", "numpy", "scipy", "pandas", "PIL", "jax", "jaxlib"}
    | {"flax", "optax", "cupy", "cupyx", "tensorflow", "keras", "lightning", "pytorch_lightning"}
    | {"lightning_fabric", "accelerate", "deepspeed", "apex", "transformer_engine", "ray", "dask"}
    | {"tqdm", "wandb", "tensorboard", "pinchpoint"}
)
_LIBRARIES = frozenset(
    {"torchvision", "torchaudio", "transformers", "diffusers", "timm", "vllm", "sglang", "xformers"}
    | {"flash_attn", "peft", "trl", "datasets", "tokenizers", "sentence_transformers", "megatron"}
    | {"fairseq", "detectron2", "mmcv", "mmengine", "mmdet", "monai", "torch_geometric", "dgl"}
    | {"torchrec", "fbgemm_gpu", "torchtune", "torchtitan"}
)
# Names in Python's library that people also give to programs of their own.
_PEOPLES_NAMES = frozenset({"test", "profile", "code", "trace", "this"})
_STANDARD = frozenset(sys.stdlib_module_names) - _PEOPLES_NAMES


@lru_cache(maxsize=1 << 16)
def frame_of(name: str) -> Frame | None:
    """The frame that a host row's name spells; None for built-ins, modules and operators."""
    match = _FRAME.fullmatch(name)
    if match is None or name.startswith("<built-in"):
        return None
    return Frame(match["file"], int(match["line"]), match["function"])


@lru_cache(maxsize=1 << 14)
def owner_of(file: str) -> Owner:
    """Whose code a file is."""
    path = file.replace("\\", "/")
    installed = _PACKAGE.search(path)
    if installed:
        package = installed[1].removesuffix(".py")
        return Owner.FRAMEWORK if package in _FRAMEWORKS else Owner.LIBRARY
    if path.startswith("<") or _PYTHON_HOME.search(path) or _GENERATED.search(path):
        return Owner.FRAMEWORK
    top, _, inside = path.partition("/")
    package = top.removesuffix(".py")
    if package in _FRAMEWORKS and inside:
        return Owner.FRAMEWORK
    if package in _STANDARD:
        return Owner.FRAMEWORK
    return Owner.LIBRARY if package in _LIBRARIES and inside else Owner.USER


def shows_python(trace: Trace) -> bool:
    """Whether the recording has Python frames, so that what is not among them did not run."""
    host = trace.host_ops
    return host is not None and bool((host["kind"] == HostKind.PYTHON).any())


@once_per_trace
def owners(trace: Trace) -> Codes:
    """The Owner of each host row that is a Python frame, 0 for the others; shape ``(rows,)``."""
    host = trace.host_ops
    if host is None:
        return np.zeros(0, np.uint8)
    # Importers call the compiler's own functions compile work; they are frames all the same.
    python = np.isin(host["kind"], (HostKind.PYTHON, HostKind.COMPILE))
    by_name = np.zeros(len(trace.names), np.uint8)
    for position in np.unique(host["name"][python]):
        frame = frame_of(trace.names[position])
        by_name[position] = frame.owner if frame else 0
    found: Codes = np.where(python, by_name[host["name"]], 0)
    return found


@once_per_trace
def telling_frames(trace: Trace) -> Mask:
    """Host rows whose frame says something to the reader: their own or a library's code."""
    owner = owners(trace)
    found: Mask = (owner == Owner.USER) | (owner == Owner.LIBRARY)
    return found
