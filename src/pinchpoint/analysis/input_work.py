"""What the training thread itself does to prepare its input, told by its Python frames.

Only the work of the process that was recorded shows; what worker processes do does not.
"""

import re
from enum import IntEnum

import numpy as np

from pinchpoint.analysis.ancestry import nearest, parents
from pinchpoint.analysis.launches import main_thread
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Codes


class InputWork(IntEnum):
    """Kinds of work that have different cures; 0 is none of them."""

    DECODE = 1  # compressed pictures, video, sound
    FILES = 2  # opening, reading, parsing
    COLLATE = 3  # making one batch of many samples
    TOKENIZE = 4  # text to numbers
    DETOKENIZE = 5  # and back


# Frames are spelt "file.py(LINE): function", built-ins "<built-in method NAME of TYPE object …>".
_NAMES: tuple[tuple[InputWork, str], ...] = (
    (
        InputWork.DETOKENIZE,
        r"\): (\w*detokeni[sz]\w*|convert_(tokens_to_string|ids_to_tokens)|batch_decode)$"
        r"|(tokenization\w*|tokenizers/.*|tiktoken/.*|sentencepiece/.*)\.py\(\d+\): _?decode\w*$"
        r"|method (decode\w*|id_to_token) of (tokenizers|tiktoken|sentencepiece)",
    ),
    (
        InputWork.TOKENIZE,
        r"\): \w*(?<!de)tokeni[sz](e|er|ation)\w*$|^(tokenizers|tiktoken|sentencepiece|sacremoses)/"
        r"|transformers/(\w+/)*tokenization_\w+\.py|^nltk/tokenize/|^spacy/tokenizer"
        r"|method encode\w* of (tokenizers|tiktoken|sentencepiece)",
    ),
    (
        InputWork.DECODE,
        r"PIL/\w*(ImageFile|ImagePlugin)\.py\(\d+\): load|of ImagingDecoder object"
        r"|built-in function (imread|imdecode)>|torchvision/io/|^image::decode|torchvision::decode"
        r"|^(av|imageio|torchcodec|turbojpeg|decord|soundfile|librosa)/|torchaudio/.*: load$"
        r"|method decode of av\.",
    ),
    (
        InputWork.FILES,
        r"built-in function (open|open_code|stat|lstat|scandir|listdir)>"
        r"|method (read|readline|readlines|readinto|read1) of _io\."
        r"|numpy/lib/(_npyio_impl|npyio)\.py\(\d+\): (load|loadtxt|genfromtxt)$"
        r"|^pathlib(/\w+)?\.py\(\d+\): (read_bytes|read_text|open)$|PIL/Image\.py\(\d+\): open$"
        r"|pandas/io/.*: read_\w+$|^(h5py|zipfile|tarfile|gzip|csv|json|zarr|lmdb)(/|\.py)"
        r"|torch/serialization\.py\(\d+\): load$",
    ),
    (InputWork.COLLATE, r"torch/utils/data/_utils/collate\.py"),
)
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _NAMES)


def input_work_of_name(name: str) -> InputWork | None:
    """The kind of work that the name of a Python frame or built-in speaks of, or None."""
    return next((kind for kind, pattern in _COMPILED if pattern.search(name)), None)


@once_per_trace
def input_work(trace: Trace) -> Codes:
    """The kind of each row of ``host_ops`` that begins such work on the thread of the steps.

    Only the outermost row of a piece of work has a kind: a file that is read by a decoder is part
    of the decoding.
    """
    host = trace.host_ops
    if host is None or not len(host):
        return np.zeros(0, np.uint8)
    by_name = np.zeros(len(trace.names), np.uint8)
    python = host["kind"] == HostKind.PYTHON
    for position in np.unique(host["name"][python]).tolist():
        by_name[position] = input_work_of_name(trace.names[position]) or 0
    code = np.where(python & (host["thread"] == main_thread(trace)), by_name[host["name"]], 0)
    chain = parents(host)
    outside = np.append(nearest(chain, code > 0), len(host))[chain] == len(host)
    found: Codes = np.where(outside, code, 0).astype(np.uint8)
    return found
