"""One file for one web page: a server on this machine that hands a trace to Perfetto's viewer.

The viewer at ui.perfetto.dev fetches the trace from this machine and reads it in the browser: it
goes nowhere else. The viewer's content security policy allows it one port only, so that is the
port. Only that page may read the answer (its origin is checked and named, never ``*``), and only
under an address that nobody can guess.
"""

import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pinchpoint.errors import UsageError
from pinchpoint.regex import regex

VIEWER = "https://ui.perfetto.dev"
PORT = 9001  # the only one that the viewer's policy lets it fetch from
_REQUEST_S = 10.0  # for a request to arrive whole
_PIECE = 1 << 20
_LOOK_S = 0.02  # between looks whether to end: nobody notices either
_ODD = regex(r"[^A-Za-z0-9._-]")  # characters that a link would have to encode, twice


class Handoff:
    """Serves ``content`` from when it is made until it was fetched once; use it with ``with``."""

    def __init__(self, content: bytes, name: str, *, port: int = PORT) -> None:
        """Raises UsageError if the port is taken."""
        path = f"/{secrets.token_urlsafe(12)}/{_ODD.sub('_', name)}"
        try:
            self._server = _Server(port, content, path)
        except OSError as error:
            raise UsageError(
                f"cannot listen on port {port} ({error.strerror}), the only one that Perfetto "
                "fetches from",
                hint="end what uses it (another pinchpoint open, trace_processor?), or export: "
                "pinchpoint export FILE --to chrome -o trace.json",
            ) from None
        self.address = f"http://127.0.0.1:{self._server.server_port}{path}"
        self.link = f"{VIEWER}/#!/?url={self.address}"

    def __enter__(self) -> "Handoff":
        threading.Thread(target=self._server.serve_forever, args=(_LOOK_S,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self, seconds: float) -> bool:
        """Whether it was fetched whole within so long."""
        return self._server.fetched.wait(seconds)


class _Server(ThreadingHTTPServer):
    """What its handlers share: the file, its address, and that it was fetched."""

    daemon_threads = True

    def __init__(self, port: int, content: bytes, path: str) -> None:
        self.content, self.path, self.fetched = content, path, threading.Event()
        super().__init__(("127.0.0.1", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_S
    server: _Server

    def version_string(self) -> str:
        """Not the versions of Python and its server."""
        return "pinchpoint"

    def do_GET(self) -> None:
        """The file, and the end of the wait."""
        content = self.server.content
        if not self._may():
            return
        self._start(200, len(content), ("Content-Type", "application/octet-stream"))
        try:
            for first in range(0, len(content), _PIECE):
                self.wfile.write(content[first : first + _PIECE])
        except OSError:  # the page was closed; it may ask again
            return
        self.server.fetched.set()

    def do_OPTIONS(self) -> None:
        """What a browser asks before a page of the network may ask a loopback address."""
        if self._may():
            allowed = ("Access-Control-Allow-Private-Network", "true")
            self._start(204, 0, ("Access-Control-Allow-Methods", "GET"), allowed)

    def log_message(self, format: str, *args: object) -> None:
        """Silence: the command says what happened."""

    def _may(self) -> bool:
        host = self.headers.get("Host", "").partition(":")[0]
        by_viewer = self.headers.get("Origin") == VIEWER
        if by_viewer and host in ("127.0.0.1", "localhost") and self.path == self.server.path:
            return True
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def _start(self, status: int, length: int, *more: tuple[str, str]) -> None:
        self.send_response(status)
        for header, value in (
            ("Access-Control-Allow-Origin", VIEWER),
            ("Vary", "Origin"),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Length", str(length)),
            *more,
        ):
            self.send_header(header, value)
        self.end_headers()
