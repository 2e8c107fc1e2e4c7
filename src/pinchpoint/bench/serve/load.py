"""The load: what is asked, and when (arrivals at a rate, or a number of clients)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import msgspec
import numpy as np

from pinchpoint.bench.serve.client import Answer
from pinchpoint.errors import UnreadableFile
from pinchpoint.frozen import dataclass
from pinchpoint.inside.quiet import at_once
from pinchpoint.replacing import read_bounded

Ask = Callable[[int], Awaitable[Answer]]
OwnTime = Callable[[], int]  # ns so far in which this thread was at work or waited for a CPU
MOST_IN_FLIGHT = 1024  # open loop: beyond this the load generator, not the server, is measured


@dataclass(frozen=True)
class Load:
    """How requests arrive."""

    requests: int
    rate_per_s: float | None = None  # open loop; None: closed loop
    rate_end_per_s: float | None = None  # open loop: the rate rises (or falls) to this
    concurrency: int = 1  # closed loop: clients; open loop: not used
    seed: int = 0

    @property
    def mode(self) -> str:
        """``open`` or ``closed``."""
        return "closed" if self.rate_per_s is None else "open"


@dataclass(frozen=True)
class Request:
    """One request: when it was meant to be sent, when its latency begins, and what came back.

    Latency counts from when its turn was, with opening the connection and waiting for a place among
    those in flight, and without what this process itself took until it sent: its work, for other
    requests too, and its waiting for a CPU. A server sees nothing of that.
    """

    meant_ns: int
    begin_ns: int
    answer: Answer


@dataclass(frozen=True)
class _Turn:
    """When a request's turn came, and what this process had taken itself until then."""

    at_ns: int
    own_ns: int

    def request(self, meant_ns: int, answer: Answer) -> Request:
        own_ns = min(max(answer.own_ns - self.own_ns, 0), answer.sent_ns - self.at_ns)
        return Request(meant_ns, self.at_ns + own_ns, answer)


_BEAT_S = 0.005  # how often the generator looks at its own clock: twenty times a usual first token


class Lag:
    """How late this process itself is, in ms: what waiting for a CPU adds to what it measures."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []

    async def __aenter__(self) -> "Lag":
        self._watch = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *ended: object) -> None:
        self._watch.cancel()
        with suppress(asyncio.CancelledError):
            await self._watch

    async def _beat(self) -> None:
        while True:
            due = perf_counter_ns() + round(_BEAT_S * 1e9)
            await asyncio.sleep(_BEAT_S)
            self.late_ms.append((perf_counter_ns() - due) / 1e6)

    @property
    def p95_ms(self) -> float:
        """0 of a load that was over at once."""
        return float(np.percentile(self.late_ms, 95)) if self.late_ms else 0.0


async def run_load(load: Load, ask: Ask, own_ns: OwnTime = lambda: 0) -> list[Request]:
    """Send all requests; ``ask(i)`` sends the i-th."""
    if load.rate_per_s is None:
        return await _closed(load, ask, own_ns)
    return await _open(load, ask, arrivals_s(load), own_ns)


def arrivals_s(load: Load) -> Sequence[float]:
    """Poisson arrivals: exponential gaps, seeded. They are not rescaled to end on time, as that
    would hide the variance of real arrivals. A ramp changes the rate from request to request."""
    first = load.rate_per_s or 1.0
    rates = np.linspace(first, load.rate_end_per_s or first, load.requests)
    gaps = np.random.default_rng(load.seed).exponential(1 / rates)
    times: list[float] = (np.cumsum(gaps) - gaps[0]).tolist()
    return times


async def _open(load: Load, ask: Ask, arrivals: Sequence[float], own_ns: OwnTime) -> list[Request]:
    begin = perf_counter_ns()
    places = asyncio.Semaphore(MOST_IN_FLIGHT)

    async def one(i: int, meant_ns: int, turn: _Turn) -> Request:
        async with places:
            return turn.request(meant_ns, await ask(i))

    tasks = []
    for i, at in enumerate(arrivals):
        meant = begin + round(at * 1e9)
        await asyncio.sleep(max(0.0, (meant - perf_counter_ns()) / 1e9))
        now_ns, own_until_ns = at_once(own_ns)
        turn = _Turn(max(meant, now_ns), own_until_ns)
        tasks.append(asyncio.create_task(one(i, meant, turn)))
    return list(await asyncio.gather(*tasks))


async def _closed(load: Load, ask: Ask, own_ns: OwnTime) -> list[Request]:
    done: list[Request] = []
    numbers = iter(range(load.requests))

    async def client() -> None:
        for i in numbers:
            turn = _Turn(*at_once(own_ns))
            done.append(turn.request(turn.at_ns, await ask(i)))

    await asyncio.gather(*(client() for _ in range(min(load.concurrency, load.requests))))
    return done


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
    """JSON lines with ``prompt`` and perhaps ``max_tokens``, or a file in ShareGPT's form.

    That is one JSON list of ``{"conversations": [{"from": "human", "value": ...}, ...]}``: the
    first turn is the prompt, and the answer beside it bounds the output by its length.
    """
    text = read_bounded(path)
    if text.lstrip().startswith(b"["):
        return _conversations(path, text)
    found = []
    for number, line in enumerate(text.splitlines(), 1):
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


class _Spoken(msgspec.Struct, frozen=True):
    value: str


class _Conversation(msgspec.Struct, frozen=True):
    conversations: list[_Spoken] = []


TOKENS_PER_WORD = 4 / 3  # of English text, by OpenAI's rule of thumb; it bounds, and counts nothing


def _conversations(path: Path, text: bytes) -> list[Prompt]:
    """Conversations of a question and an answer at least; others are left out."""
    try:
        found = msgspec.json.decode(text, type=list[_Conversation])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = '[{"conversations": [{"from": "human", "value": "..."}, ...]}, ...]'
        raise UnreadableFile(f"{path}: {error}", hint=hint) from None
    turns = [one.conversations for one in found if len(one.conversations) > 1]
    if not turns:
        raise UnreadableFile(f"{path}: no conversation of two turns", hint="is it ShareGPT's form?")
    return [
        Prompt(first.value, max(round(TOKENS_PER_WORD * len(answer.value.split())), 1))
        for first, answer, *_ in turns
    ]


def with_prefix(prompts: Sequence[Prompt], words: int, seed: int) -> list[Prompt]:
    """The prompts behind one shared prefix, as a system prompt is: servers may keep its cache."""
    if not words:
        return list(prompts)
    prefix = random_prompts(1, words, seed)[0].prompt
    return [Prompt(f"{prefix} {one.prompt}", one.max_tokens) for one in prompts]


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
