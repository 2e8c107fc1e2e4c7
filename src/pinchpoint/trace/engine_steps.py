"""What serving engines write on their rounds: how many requests and tokens each computes.

vLLM: ``execute_context_2(512)_generation_30(30)`` (``gpu_worker.annotate_profile``); detailed ones
spell ``9(sq8155sk8430…)``: queries, and the positions of the cache that these requests hold.
SGLang: ``step[EXTEND bs=15 toks=15360]``, ``step[DECODE bs=32]``; TensorRT-LLM:
``[Executor] _forward_step 7: 1 ctx reqs, 128 ctx tokens, 3 gen reqs``.
"""

import re
from functools import lru_cache

from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex

_VLLM = regex(
    r"execute_(?:\d+_)?context_(?P<pre>\d+)\((?:sq)?(?P<pretok>\d+)[^)]*\)"
    r"_generation_(?P<gen>\d+)\((?:sq)?(?P<gentok>\d+)(?:sk(?P<held>\d+))?[^)]*\)"
)
_SGLANG = regex(r"step\[(?P<mode>[A-Z_]+) bs=(?P<bs>\d+)(?: toks=(?P<toks>\d+))?[^\]]*\]")
_TENSORRT = regex(
    r"\[Executor\] _forward_step(?: \d+)?: (?P<pre>\d+) ctx reqs,"
    r"(?: (?P<pretok>\d+) ctx tokens,)? (?P<gen>\d+) gen reqs"
)
_MOST = 9  # digits of a count
_LONGEST = 1000  # characters: the patterns take the square of it where they do not fit
_DECODES, _PREFILLS = ("DECODE",), ("EXTEND", "PREFILL", "SPLIT_PREFILL")  # modes of SGLang


@dataclass(frozen=True)
class EngineStep:
    """One round of a serving engine, as its name says; None where it does not."""

    engine: str
    kind: str  # prefill, decode, mixed, idle, or SGLang's own word for the others (target_verify)
    prefill_requests: int
    prefill_tokens: int | None
    decode_requests: int
    decode_tokens: int | None  # as many as requests, unless several are proposed for each
    decode_positions: int | None = None  # of the cache, that all decoding requests hold together


@lru_cache(1 << 14)  # names are few beside events
def engine_step(name: str) -> EngineStep | None:
    """What the name of an annotation says of a round; None for other names."""
    if len(name) > _LONGEST:
        return None
    for pattern, read in ((_VLLM, _of_vllm), (_SGLANG, _of_sglang), (_TENSORRT, _of_tensorrt)):
        match = pattern.fullmatch(name)
        if match and all(
            len(v or "") <= _MOST for k, v in match.groupdict().items() if k != "mode"
        ):
            return read(match)
    return None


def _kind(prefills: int, decodes: int) -> str:
    if prefills and decodes:
        return "mixed"
    return "prefill" if prefills else "decode" if decodes else "idle"


def _of_vllm(match: re.Match[str]) -> EngineStep:
    pre, tokens, gen, proposed = (int(match[g]) for g in ("pre", "pretok", "gen", "gentok"))
    held = int(match["held"]) if match["held"] else None
    return EngineStep("vLLM", _kind(pre, gen), pre, tokens, gen, proposed, held)


def _of_sglang(match: re.Match[str]) -> EngineStep:
    size, tokens = int(match["bs"]), match["toks"]
    if match["mode"] in _DECODES:
        return EngineStep("SGLang", "decode", 0, 0, size, size)
    if match["mode"] in _PREFILLS:
        return EngineStep("SGLang", "prefill", size, int(tokens) if tokens else None, 0, 0)
    return EngineStep("SGLang", match["mode"].lower(), 0, None, size, None)


def _of_tensorrt(match: re.Match[str]) -> EngineStep:
    pre, gen = int(match["pre"]), int(match["gen"])
    tokens = int(match["pretok"]) if match["pretok"] else (None if pre else 0)
    return EngineStep("TensorRT-LLM", _kind(pre, gen), pre, tokens, gen, gen)
