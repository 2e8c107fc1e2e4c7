"""What is asked: the same prompt, prompts from a file, or words at random."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pinchpoint.bench.metrics import read_bounded
from pinchpoint.errors import UnreadableFile

_TEXT = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from"
)
_WORDS = tuple(_TEXT.split())


class Prompt(msgspec.Struct, frozen=True):
    """One request's content."""

    prompt: str
    max_tokens: int | None = None


def random_prompts(count: int, words: int, seed: int) -> list[Prompt]:
    """Common words at random, so that no two prompts share a cached prefix."""
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(_WORDS), (count, words))
    return [Prompt(" ".join(_WORDS[i] for i in row)) for row in picks]


def prompts_from(path: Path) -> list[Prompt]:
    """JSON lines with ``prompt`` and perhaps ``max_tokens``."""
    found = []
    for number, line in enumerate(read_bounded(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=Prompt))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableFile(
                f"{path}, line {number}: {error}", hint='one {"prompt": "..."} a line'
            ) from None
    if not found:
        raise UnreadableFile(f"{path}: no prompts", hint='one {"prompt": "..."} a line')
    return found


def body(
    prompt: Prompt, *, model: str, max_tokens: int, chat: bool, extra: dict[str, Any]
) -> dict[str, Any]:
    """The request's JSON."""
    content: dict[str, Any] = {"prompt": prompt.prompt}
    if chat:
        content = {"messages": [{"role": "user", "content": prompt.prompt}]}
    return (
        {"model": model, "stream": True, "stream_options": {"include_usage": True}}
        | content
        | {"max_tokens": prompt.max_tokens or max_tokens, "temperature": 0.0}
        | extra
    )


def cycled(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """``count`` prompts, from the beginning again where there are fewer."""
    return [prompts[i % len(prompts)] for i in range(count)]
