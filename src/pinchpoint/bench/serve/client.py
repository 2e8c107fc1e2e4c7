"""One streaming request over HTTP/1.1, with the time of every chunk. Bounded in every way.

The protocol is h11's (extra ``load``); the connection is our own, one a request, so that nothing
stands between the arrival of bytes and the reading of the clock.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from time import perf_counter_ns
from typing import Any
from urllib.parse import urlsplit

from pinchpoint.errors import MissingExtra, UsageError, install_hint
from pinchpoint.frozen import dataclass

HEADER_LIMIT = 64 << 10  # what servers and proxies accept of us; none sends more back
BODY_LIMIT = 64 << 20  # a thousand times the longest answers
LINE_LIMIT = 1 << 20  # an event carries a token, or the whole usage at most
READ_BYTES = 64 << 10  # one read of a socket seldom has more


@dataclass(frozen=True)
class Endpoint:
    """Where requests go."""

    host: str
    port: int
    path: str
    tls: bool
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """What came back; times are of the monotonic clock, in ns."""

    sent_ns: int
    chunk_ns: tuple[int, ...]  # chunks with text, in order
    end_ns: int
    tokens: int | None  # as the server counts them
    error: str | None = None


class BadAnswer(Exception):
    """The server's answer is not what this client can use."""


def endpoint(url: str, headers: Mapping[str, str]) -> Endpoint:
    """From the URL of the completions or chat resource; UsageError if it is none."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{url}: {error}", hint="http://localhost:8000/v1/completions") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url}: not an http address", hint="http://localhost:8000/v1/completions")
    tls = parts.scheme == "https"
    path = parts.path or "/v1/completions"
    return Endpoint(parts.hostname, port or (443 if tls else 80), path, tls, headers)


def require_http() -> None:
    """Raises MissingExtra if the library that speaks HTTP is not installed."""
    try:
        import h11  # noqa: F401
    except ImportError:
        raise MissingExtra(
            "bench serve needs the package h11", hint=install_hint("load", "h11")
        ) from None


async def ask(where: Endpoint, body: Mapping[str, object], timeout_s: float) -> Answer:
    """Send one request and read its stream to the end; failures are answers with ``error``."""
    sent_ns = perf_counter_ns()
    chunk_ns: list[int] = []
    tokens: int | None = None
    error: str | None = None
    try:
        async with asyncio.timeout(timeout_s):
            async with aclosing(_events(where, json.dumps(body).encode())) as events:
                async for event in events:
                    if _has_text(event):
                        chunk_ns.append(perf_counter_ns())
                    tokens = _usage(event) or tokens
        if not chunk_ns:
            error = "no text came back"
    except TimeoutError:
        error = f"no end within {timeout_s:g} s"
    except BadAnswer as problem:
        error = str(problem)[:200]
    except (OSError, ValueError) as problem:
        error = f"{type(problem).__name__}: {problem}"[:200]
    return Answer(sent_ns, tuple(chunk_ns), perf_counter_ns(), tokens, error)


async def _events(where: Endpoint, body: bytes) -> AsyncGenerator[dict[str, object], None]:
    """The stream's JSON objects (server-sent events), to its end or its ``[DONE]``."""
    context = ssl.create_default_context() if where.tls else None
    reader, writer = await asyncio.open_connection(where.host, where.port, ssl=context)
    try:
        async for line in _lines(_pieces(reader, writer, where, body)):
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            try:
                event = json.loads(data)
            except ValueError:
                raise BadAnswer("an event that is not JSON") from None
            if isinstance(event, dict):
                yield event
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _pieces(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, where: Endpoint, body: bytes
) -> AsyncIterator[bytes]:
    """Ask, and give the body of the answer as it arrives. Raises BadAnswer."""
    import h11

    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEADER_LIMIT)
    for part in (_request(where, len(body)), h11.Data(data=body), h11.EndOfMessage()):
        writer.write(http.send(part) or b"")
    await writer.drain()
    total = 0
    try:
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(READ_BYTES))
            elif isinstance(event, h11.Response) and event.status_code != 200:
                raise BadAnswer(f"status {event.status_code}")
            elif isinstance(event, h11.Data):
                total += len(event.data)
                if total > BODY_LIMIT:
                    raise BadAnswer("an answer of over 64 MiB")
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return
    except h11.RemoteProtocolError as problem:
        raise BadAnswer(f"a broken HTTP answer: {problem}") from None


def _request(where: Endpoint, length: int) -> Any:
    import h11

    headers = {
        "Host": f"{where.host}:{where.port}",
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "Connection": "close",
        "Content-Length": str(length),
        **where.headers,
    }
    try:
        return h11.Request(method="POST", target=where.path, headers=list(headers.items()))
    except h11.LocalProtocolError as problem:
        raise BadAnswer(f"not a request: {problem}") from None


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LINE_LIMIT:
            raise BadAnswer("a line of over 1 MiB")
        for line in lines:
            yield line.rstrip(b"\r")
    if rest:
        yield rest


def _has_text(event: Mapping[str, object]) -> bool:
    choices = event.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return False
    choice = choices[0]
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
    return bool(text)


def _usage(event: Mapping[str, object]) -> int | None:
    usage = event.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and count > 0 else None
