"""Advice for programs that a serving engine runs: what compiles and records there is the engine.

Nobody who serves a model with vLLM, SGLang or TensorRT-LLM writes ``torch.compile`` around it: the
engine compiles the model and records its rounds as CUDA graphs by itself, up to a number of tokens
or requests, unless an option forbids it. Which options these are:
docs.vllm.ai (CUDA graphs: ``cudagraph_capture_sizes``, ``enforce_eager``), docs.sglang.ai (server
arguments: ``cuda-graph-max-bs``, ``disable-cuda-graph``), nvidia.github.io/TensorRT-LLM
(``CudaGraphConfig``), read in November 2026.
"""

from collections.abc import Callable, Mapping

import msgspec

from pinchpoint.analysis.work.serving import Serving, engine_around, serving
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace

_COMPILES = "compile"  # the knob of rules whose fix is that something compiles or records the model
_CONFIRM = "pinchpoint bench serve URL -o after && pinchpoint compare before after"


def in_engine(trace: Trace, rule: Rule, found: Found) -> Found:
    """The finding with the options of the engine that runs the model, where one does."""
    if _COMPILES not in rule.knobs or (engine := engine_around(trace)) not in _OPTIONS:
        return found
    said = serving(trace)
    tokens, requests = (None, None) if said is None else _most(said)
    upto = "" if tokens is None else f" (requests: {requests:,}, tokens: {tokens:,})"
    return msgspec.structs.replace(
        found,
        fix=f"Let {engine} compile the model and record its rounds as CUDA graphs, up to the"
        f" largest that it runs{upto}",
        hint=_OPTIONS[engine](tokens, requests),
        confirm=_CONFIRM,
    )


def _most(said: Serving) -> tuple[int, int]:
    """Tokens and requests of the largest round; as many tokens as requests where none is said."""
    requests = max(one.requests for one in said.rounds)
    tokens = max(one.requests if one.tokens is None else one.tokens for one in said.rounds)
    return tokens, requests


def _of_vllm(tokens: int | None, _: int | None) -> str:
    sizes = f"  # and cudagraph_capture_sizes up to {tokens}" if tokens else ""
    return f"LLM(MODEL, enforce_eager=False){sizes}"


def _of_sglang(_: int | None, requests: int | None) -> str:
    largest = f" --cuda-graph-max-bs {requests}" if requests else ""
    return f"python -m sglang.launch_server{largest}  # without --disable-cuda-graph"


def _of_tensorrt(_: int | None, requests: int | None) -> str:
    largest = f"max_batch_size={requests}, " if requests else ""
    return f"LLM(MODEL, cuda_graph_config=CudaGraphConfig({largest}enable_padding=True))"


_OPTIONS: Mapping[str | None, Callable[[int | None, int | None], str]] = {
    "vLLM": _of_vllm,
    "SGLang": _of_sglang,
    "TensorRT-LLM": _of_tensorrt,
}
