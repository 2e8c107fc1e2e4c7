"""What is refused before any page is made, and the headers that every answer carries.

A page on another site can make a browser send requests to this machine. It cannot read the answers
(no CORS headers), cannot reach us under a name of its own (the ``Host`` check, against DNS
rebinding), cannot put us into a frame, and cannot make us change anything: there is only GET.
"""

import base64
import hashlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pinchpoint.serve.pages import style

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
LONGEST_ADDRESS = 8192  # bytes of a request's path and query


def policy() -> str:
    """The content security policy of our own pages: their style sheet and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


def guarded(app: Application, hosts: frozenset[str] | None) -> Application:
    """The application behind the checks; ``hosts`` None accepts every name."""

    async def ask(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_missing(message["headers"])]
            await send(message)

        if refusal := _refusal(scope, hosts):
            await _refuse(with_headers, *refusal)
        else:
            await app(scope, receive, with_headers)

    return ask


def _refusal(scope: Scope, hosts: frozenset[str] | None) -> tuple[int, str] | None:
    headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
    if scope["method"] not in ("GET", "HEAD"):
        return 405, "only GET: nothing here can be changed"
    if len(scope["raw_path"] or b"") + len(scope["query_string"]) > LONGEST_ADDRESS:
        return 414, "too long an address"
    if hosts is not None and _host(headers.get(b"host", "")) not in hosts:
        return 421, "this server answers to localhost only"
    from_elsewhere = headers.get(b"sec-fetch-site") == "cross-site"
    if from_elsewhere and headers.get(b"sec-fetch-mode") != "navigate":
        return 403, "asked for by a page of another site"
    return None


def _host(header: str) -> str:
    """The name without the port."""
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdecimal() else header).lower()


def _missing(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    given = {name.lower() for name, _ in headers}
    return [(name, value) for name, value in _headers() if name not in given]


def _headers() -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"content-security-policy", policy().encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cache-control", b"no-store"),
    )


async def _refuse(send: Send, status: int, why: str) -> None:
    body = f"{why}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    headers += [(b"allow", b"GET, HEAD")] if status == 405 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
