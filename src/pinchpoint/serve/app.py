"""The application: four pages, each made when it is asked for. Needs Starlette."""

import base64
import hashlib
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, MutableMapping
from html import unescape
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_to_bytes

from pinchpoint.errors import PinchpointError, UnreadableFile
from pinchpoint.json_text import said
from pinchpoint.regex import regex
from pinchpoint.serve import pages
from pinchpoint.serve.index import Index
from pinchpoint.serve.pages import style
from pinchpoint.serve.places import Place, fingerprint, place
from pinchpoint.serve.reader import Reader

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

# ------------------------------------------------------------------------------------------------
# What is refused before any page is made, and the headers that every answer carries.
#
# A page on another site can make a browser send requests to this machine. It cannot read the
# answers (no CORS headers), cannot reach us under a name of its own (the ``Host`` check, against
# DNS rebinding), cannot put us into a frame, and cannot make us change anything: there is only
# GET.


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
            await app(_by_bytes(scope), receive, with_headers)

    return ask


def _by_bytes(scope: Scope) -> Scope:
    """With the path as names of files are held: servers lose the bytes that are not UTF-8."""
    raw = scope["raw_path"]
    return {**scope, "path": os.fsdecode(unquote_to_bytes(raw))} if raw else scope


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


# ------------------------------------------------------------------------------------------------
# Made pages, kept while there is room.


MOST_BYTES = 256 << 20


class PageCache:
    """Texts by key, least recently used out first; each is made once, one at a time.

    One at a time also bounds memory: a recording of gigabytes is never read twice at once.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._texts: OrderedDict[Hashable, bytes] = OrderedDict()
        self.making = Lock()

    def get(self, key: Hashable, make: Callable[[], str]) -> bytes:
        """The text as UTF-8; what ``make`` raises is not remembered."""
        with self.making:
            if key not in self._texts:
                self._texts[key] = make().encode("utf-8", "replace")
            self._texts.move_to_end(key)
            text = self._texts[key]
            while len(self._texts) > 1 and self.bytes > self._most_bytes:
                self._texts.popitem(last=False)
            return text

    @property
    def bytes(self) -> int:
        """What the kept texts take."""
        return sum(map(len, self._texts.values()))


# ------------------------------------------------------------------------------------------------
# The application: four pages, each made when it is asked for. Needs Starlette.


_STATED = regex(rb'http-equiv="Content-Security-Policy" content="([^"]*)"')
_HEAD_BYTES = 4096

Page = Callable[["Request"], "Response"]


def application(
    root: Path,
    *,
    hosts: frozenset[str] | None,
    key: str = "",
    cache: PageCache | None = None,
    index: Index | None = None,
) -> Application:
    """What answers for the recordings below ``root``.

    Without an ``index`` every recording is read again by each new server. ``hosts`` are the names
    under which it answers, None every one. With a ``key`` all addresses begin with it, so that who
    does not know it gets nothing.
    """
    from starlette.applications import Starlette
    from starlette.convertors import PathConvertor, register_url_convertor
    from starlette.routing import Mount, Route

    class AnyName(PathConvertor):  # type: ignore[misc]  # not followed: it may be absent
        regex = r"[\s\S]*"  # that of paths ends at a line feed, which names may have

    register_url_convertor("any_name", AnyName())

    root = root.resolve()
    base = f"/{key}/" if key else "/"
    kept = cache or PageCache()
    known = index or Index(None)
    routes = [
        Route("/", _page(_list(root, base, known, Reader(root, known, kept.making)), base)),
        Route("/report/{name:any_name}", _page(_report(root, kept, base, known), base)),
        Route("/ranks/{name:any_name}", _page(_ranks(root, kept, base, known), base)),
        Route("/run/{name:any_name}", _page(_run(root, base), base)),
        Route("/compare", _page(_compare(root, kept, base), base)),
    ]
    mounted = [Mount(f"/{key}", routes=routes)] if key else routes
    return guarded(Starlette(routes=mounted, exception_handlers={404: _nothing}), hosts)


def _list(root: Path, base: str, index: Index, reader: Reader) -> Page:
    def answer(request: "Request") -> "Response":
        wanted = request.query_params.get("q", "")
        return _html(pages.list_page(root, base, index, reader, wanted))

    return answer


def _report(root: Path, kept: PageCache, base: str, index: Index) -> Page:
    def answer(request: "Request") -> "Response":
        what = place(root, request.path_params["name"])
        state = (what.path, fingerprint(what.path))
        text = kept.get(state, lambda: pages.report_page(what, base, index))
        return _html(text, policy=_policy_of(text))

    return answer


def _ranks(root: Path, kept: PageCache, base: str, index: Index) -> Page:
    def answer(request: "Request") -> "Response":
        files = pages.ranks_of(root, place(root, request.path_params["name"]))
        state = ("ranks", *((file, fingerprint(Path(file))) for file in files))
        text = kept.get(state, lambda: pages.ranks_page(root, files, base, index))
        return _html(text, policy=_policy_of(text))

    return answer


def _run(root: Path, base: str) -> Page:
    def answer(request: "Request") -> "Response":
        return _html(pages.run_page(root, place(root, request.path_params["name"]), base))

    return answer


def _compare(root: Path, kept: PageCache, base: str) -> Page:
    def answer(request: "Request") -> "Response":
        words = dict(parse_qsl(request.url.query, errors="surrogateescape"))
        if "a" not in words or "b" not in words:
            raise UnreadableFile("two recordings are needed", hint="choose an A and a B")
        a, b = _chosen(root, words["a"]), _chosen(root, words["b"])
        state = (a.path, fingerprint(a.path), b.path, fingerprint(b.path))
        return _html(kept.get(state, lambda: pages.compare_pages(a, b, base)))

    return answer


def _chosen(root: Path, name: str) -> Place:
    """What a form names: forms are text, so names of files that are none stand there in quotes."""
    try:
        return place(root, name)
    except UnreadableFile:
        if "%" not in name:
            raise
        return place(root, os.fsdecode(unquote_to_bytes(name)))


def _page(answer: Page, base: str) -> Page:
    """The page, or one that says in a line why there is none."""

    def safe(request: "Request") -> "Response":
        try:
            return answer(request)
        except PinchpointError as error:
            return _html(pages.problem_page(error.message, error.hint, base), status=404)
        except Exception as error:
            what = f"{type(error).__name__}: {error}; this is a bug in Pinchpoint, please report"
            return _html(pages.problem_page(what, "", base), status=500)

    return safe


def _nothing(request: "Request", error: Exception) -> "Response":
    return _html(pages.problem_page("there is no such page", "", None), status=404)


def _html(text: str | bytes, *, status: int = 200, policy: str | None = None) -> "Response":
    from starlette.responses import HTMLResponse

    headers = {} if policy is None else {"Content-Security-Policy": policy}
    text = said(text) if isinstance(text, str) else text
    return HTMLResponse(text, status_code=status, headers=headers)


def _policy_of(report: bytes) -> str:
    """The policy that a report states for itself, and that nobody may frame it."""
    stated = _STATED.search(report[:_HEAD_BYTES])
    own = unescape(stated[1].decode("ascii", "replace")) if stated else "default-src 'none'"
    return f"{own}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
