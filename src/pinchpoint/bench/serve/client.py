"""One streaming request over HTTP/1.1, with the time of every chunk. Bounded in every way."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from time import perf_counter_ns
from urllib.parse import urlsplit

from pinchpoint.errors import UsageError

HEADER_LIMIT = 64 << 10
BODY_LIMIT = 64 << 20
LINE_LIMIT = 1 << 20


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
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url}: not an http address", hint="http://localhost:8000/v1/completions")
    tls = parts.scheme == "https"
    path = parts.path or "/v1/completions"
    return Endpoint(parts.hostname, parts.port or (443 if tls else 80), path, tls, headers)


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
    except (OSError, asyncio.IncompleteReadError, ValueError) as problem:
        error = f"{type(problem).__name__}: {problem}"[:200]
    return Answer(sent_ns, tuple(chunk_ns), perf_counter_ns(), tokens, error)


async def _events(where: Endpoint, body: bytes) -> AsyncGenerator[dict[str, object], None]:
    context = ssl.create_default_context() if where.tls else None
    reader, writer = await asyncio.open_connection(
        where.host, where.port, ssl=context, limit=LINE_LIMIT
    )
    try:
        writer.write(_head(where, len(body)) + body)
        await writer.drain()
        chunked = await _response_head(reader)
        async for line in _lines(_pieces(reader, chunked)):
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


def _head(where: Endpoint, length: int) -> bytes:
    lines = [
        f"POST {where.path} HTTP/1.1",
        f"Host: {where.host}:{where.port}",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        "Connection: close",
        f"Content-Length: {length}",
        *(f"{name}: {value}" for name, value in where.headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _response_head(reader: asyncio.StreamReader) -> bool:
    """Read status and headers; whether the body is chunked."""
    status = await _line(reader)
    words = status.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise BadAnswer("not an HTTP answer")
    headers: dict[bytes, bytes] = {}
    size = 0
    while line := await _line(reader):
        size += len(line)
        if size > HEADER_LIMIT:
            raise BadAnswer("headers without end")
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip().lower()
    if words[1] != b"200":
        raise BadAnswer(f"status {words[1].decode('latin-1')}")
    return headers.get(b"transfer-encoding") == b"chunked"


async def _line(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readuntil(b"\n")
    return line.rstrip(b"\r\n")


async def _pieces(reader: asyncio.StreamReader, chunked: bool) -> AsyncIterator[bytes]:
    """The body as it arrives."""
    total = 0
    while True:
        if chunked:
            size = int((await _line(reader)).split(b";")[0] or b"0", 16)
            if size == 0:
                return
            if total + size > BODY_LIMIT:
                raise BadAnswer("an answer of over 64 MiB")
            piece = await reader.readexactly(size)
            await reader.readexactly(2)
        else:
            piece = await reader.read(1 << 16)
            if not piece:
                return
        total += len(piece)
        if total > BODY_LIMIT:
            raise BadAnswer("an answer of over 64 MiB")
        yield piece


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
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
