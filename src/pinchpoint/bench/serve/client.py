"""One streaming request over HTTP/1.1, with the time of every chunk. Bounded in every way.

The protocol is h11's (extra ``load``); the connection is our own, one a request.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, closing
from dataclasses import replace
from time import perf_counter_ns
from typing import Any
from urllib.parse import urlsplit

from pinchpoint.bench.serve.connection import (
    Address,
    Bytes,
    Connection,
    addresses,
    connect,
    connect_safely,
)
from pinchpoint.errors import MissingExtra, UsageError, install_hint
from pinchpoint.frozen import dataclass
from pinchpoint.inside.quiet import at_once

HEADER_LIMIT = 64 << 10  # what servers and proxies accept of us; none sends more back
BODY_LIMIT = 64 << 20  # a thousand times the longest answers
LINE_LIMIT = 1 << 20  # an event carries a token, or the whole usage at most


@dataclass(frozen=True)
class Endpoint:
    """Where requests go."""

    host: str
    port: int
    path: str
    tls: bool
    headers: Mapping[str, str]
    addresses: tuple[Address, ...] = ()  # of the host, where they are known


@dataclass(frozen=True)
class Answer:
    """What came back; times are of the monotonic clock, in ns."""

    sent_ns: int  # to the connection, once that is open
    chunk_ns: tuple[int, ...]  # chunks with text, in order
    end_ns: int
    tokens: int | None  # as the server counts them
    error: str | None = None
    own_ns: int = 0  # that this process was at work or waited for a CPU, until ``sent_ns``


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


async def ask(
    where: Endpoint,
    body: Mapping[str, object],
    timeout_s: float,
    own_ns: Callable[[], int] = lambda: 0,
) -> Answer:
    """Send one request and read its stream to the end; failures are answers with ``error``.

    ``own_ns`` tells how long this thread has worked or waited for a CPU so far.
    """
    sent_ns, own_until_ns = at_once(own_ns)
    chunk_ns: list[int] = []
    tokens: int | None = None
    error: str | None = None
    end_ns: int | None = None
    try:
        async with asyncio.timeout(timeout_s):
            content = _content(where, json.dumps(body).encode())
            connection = await _connected(where)
            with closing(connection):
                sent_ns, own_until_ns = at_once(own_ns)
                left_ns = await connection.send(content)
                # What passed until it left is ours only as far as we worked or waited for a CPU.
                late_ns = min(max(left_ns - sent_ns, 0), own_ns() - own_until_ns)
                sent_ns, own_until_ns = sent_ns + late_ns, own_until_ns + late_ns
                async with aclosing(_events(connection)) as events:
                    async for event, end_ns in events:
                        if _has_text(event):
                            chunk_ns.append(end_ns)
                        tokens = _usage(event) or tokens
        if not chunk_ns:
            error = "no text came back"
    except TimeoutError:
        error = f"no end within {timeout_s:g} s"
    except BadAnswer as problem:
        error = str(problem)[:200]
    except (OSError, ValueError) as problem:
        error = f"{type(problem).__name__}: {problem}"[:200]
    if error or end_ns is None:
        end_ns = perf_counter_ns()
    return Answer(sent_ns, tuple(chunk_ns), end_ns, tokens, error, own_until_ns)


async def located(where: Endpoint) -> Endpoint:
    """With the addresses of its host; without where it has none, as each request will say."""
    try:
        return replace(where, addresses=await addresses(where.host, where.port))
    except OSError:
        return where


async def _connected(where: Endpoint) -> Connection:
    if where.tls:
        return await connect_safely(where.host, where.port)
    return await connect(where.addresses or await addresses(where.host, where.port))


def _content(where: Endpoint, body: bytes) -> bytes:
    """The request as it is sent. Raises BadAnswer."""
    import h11

    http = h11.Connection(h11.CLIENT)
    parts = (_request(where, len(body)), h11.Data(data=body), h11.EndOfMessage())
    return b"".join(http.send(part) or b"" for part in parts)


async def _events(connection: Connection) -> AsyncGenerator[tuple[dict[str, object], int], None]:
    """The stream's JSON objects (server-sent events), to its end or its ``[DONE]``, and when each
    arrived."""
    async for line, arrived_ns in _lines(_pieces(connection)):
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
            yield event, arrived_ns


async def _pieces(connection: Connection) -> AsyncIterator[Bytes]:
    """The body of the answer as it arrives. Raises BadAnswer."""
    import h11

    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEADER_LIMIT)
    http.send(h11.Request(method="POST", target="/", headers=[("Host", "sent")]))
    http.send(h11.EndOfMessage())  # nothing else tells it that an answer may come
    total, arrived_ns = 0, 0
    try:
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                read = await connection.read()
                arrived_ns = read.arrived_ns
                http.receive_data(read.data)
            elif isinstance(event, h11.Response) and event.status_code != 200:
                raise BadAnswer(f"status {event.status_code}")
            elif isinstance(event, h11.Data):
                total += len(event.data)
                if total > BODY_LIMIT:
                    raise BadAnswer("an answer of over 64 MiB")
                yield Bytes(bytes(event.data), arrived_ns)
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


async def _lines(pieces: AsyncIterator[Bytes]) -> AsyncIterator[tuple[bytes, int]]:
    """Each line, and when its end arrived."""
    rest, arrived_ns = b"", 0
    async for piece in pieces:
        arrived_ns = piece.arrived_ns
        *lines, rest = (rest + piece.data).split(b"\n")
        if len(rest) > LINE_LIMIT:
            raise BadAnswer("a line of over 1 MiB")
        for line in lines:
            yield line.rstrip(b"\r"), arrived_ns
    if rest:
        yield rest, arrived_ns


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
