"""Packages that frames of Python belong to, by the first part of their paths.

PyTorch writes paths relative to where a file was found, so that a package that somebody installed
looks like one of the program's own. A process that was watched says which ones are installed; of
the well-known ones the first part of the path says it.
"""

import sys
from collections.abc import Collection
from dataclasses import replace

from pinchpoint.regex import regex
from pinchpoint.trace.trace import Trace

# Of these a reader wants to know what called them, not where inside they were.
FRAMEWORKS = frozenset(
    {"torch", "torchgen", "functorch", "triton", "numpy", "scipy", "pandas", "PIL", "jax", "jaxlib"}
    | {"flax", "optax", "cupy", "cupyx", "tensorflow", "keras", "lightning", "pytorch_lightning"}
    | {"lightning_fabric", "lightning_utilities", "accelerate", "deepspeed", "apex", "ray", "dask"}
    | {"transformer_engine"}
    | {"tqdm", "wandb", "tensorboard", "pinchpoint", "IPython", "ipykernel", "tornado", "zmq"}
)
LIBRARIES = frozenset(
    {"torchvision", "torchaudio", "transformers", "diffusers", "timm", "vllm", "sglang", "xformers"}
    | {"flash_attn", "peft", "trl", "datasets", "tokenizers", "sentence_transformers", "megatron"}
    | {"fairseq", "detectron2", "mmcv", "mmengine", "mmdet", "monai", "torch_geometric", "dgl"}
    | {"torchrec", "fbgemm_gpu", "torchtune", "torchtitan", "torchmetrics", "torchdata", "ignite"}
    | {"sklearn", "skimage", "cv2", "albumentations", "matplotlib", "networkx", "einops", "numba"}
    | {"nltk", "spacy", "gensim", "sentencepiece", "tiktoken", "pyarrow", "polars", "h5py", "zarr"}
    | {"fsspec", "requests", "urllib3", "hydra", "omegaconf", "pydantic", "yaml", "rich", "joblib"}
    | {
        "mlflow",
        "gymnasium",
        "stable_baselines3",
        "pandera",
        "xarray",
        "statsmodels",
        "safetensors",
    }
)
# Names in Python's library that people also give to programs of their own.
_PEOPLES_NAMES = frozenset({"test", "profile", "code", "trace", "this"})
STANDARD = frozenset({*sys.stdlib_module_names, "ipykernel_launcher"}) - _PEOPLES_NAMES
_KNOWN = FRAMEWORKS | LIBRARIES | STANDARD
INSTALLED = "site-packages/"
_TOP = regex(r"([A-Za-z_]\w*)(?:/|\.py\()")


def as_installed(frame: str, installed: Collection[str]) -> str:
    """A frame as it is spelt, ``file(line): function``, of a package that is installed and not well
    known: with the folder that it is in, as all read it who ask whose code it is."""
    top = _TOP.match(frame)
    if top is None or top[1] in _KNOWN or top[1] not in installed:
        return frame
    return INSTALLED + frame


def with_installed(trace: Trace, installed: Collection[str]) -> Trace:
    """The trace with all its frames spelt so."""
    if not installed:
        return trace
    return replace(trace, names=tuple(as_installed(name, installed) for name in trace.names))
