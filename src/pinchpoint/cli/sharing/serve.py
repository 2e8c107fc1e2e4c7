"""Browse many recordings in a browser: reports, comparisons, a run in progress."""

import os
import secrets
import socket
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note
from pinchpoint.errors import MissingExtra, UsageError, install_hint

Switch = Parameter(negative="")
DEFAULT_PORT = 8707
LARGEST_PORT = 65535


def command(
    folder: Path = Path(),
    /,
    *,
    port: int = DEFAULT_PORT,
    host: str = "127.0.0.1",
    allow_network: Annotated[bool, Switch] = False,
    key: Annotated[bool, Switch] = False,
) -> int:
    """Serve the recordings below a folder to browsers on this machine, until Ctrl-C.

    A notebook of runs: of each its step, the answer, what changed since the one before, what was
    predicted of that, and your note (pinchpoint note RUN TEXT). What was read once is kept in one
    file below ~/.cache/pinchpoint. Addresses can be passed on: those of a search (?q=...) too.

    Nothing can be changed through it, and nothing outside the folder be read. Needs the extra
    serve. On another machine: ssh -L 8707:localhost:8707 MACHINE, then serve there.

    Parameters
    ----------
    folder
        Where to look for recordings and run folders; a run folder itself will do.
    port
        0 takes a free one.
    host
        The address to listen on. Any but this machine's own needs --allow-network.
    allow_network
        Let other machines in; the link then has a secret in it, and works only whole.
    key
        Put a secret into the link on this machine too, where others have an account.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", hint="pinchpoint serve FOLDER")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise UsageError(
            f"{folder}: this user may not look into it", hint="pinchpoint serve FOLDER"
        )
    if folder.resolve() == Path(folder.resolve().anchor):
        raise UsageError(f"{folder}: the whole disk", hint="name the folder of your recordings")
    local = _is_loopback(host)
    if not local and not allow_network:
        raise UsageError(
            f"--host {host} lets other machines read {folder.resolve()}",
            hint="add --allow-network if that is what you want, or tunnel with ssh -L",
        )
    secret = secrets.token_urlsafe(16) if key or not local else ""
    _serve(folder, host, port, secret, local=local)
    return 0


def _serve(folder: Path, host: str, port: int, secret: str, *, local: bool) -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError:
        raise MissingExtra(
            "serve needs Starlette and uvicorn", hint=install_hint("serve", "starlette", "uvicorn")
        ) from None
    from pinchpoint.cli.sharing._server import Server
    from pinchpoint.serve.app import LOOPBACK_NAMES, application
    from pinchpoint.serve.index import Index, index_file

    listening = _listen(host, port)
    _allow_connections()
    index = Index(index_file(folder))
    app = application(folder, hosts=LOOPBACK_NAMES if local else None, key=secret, index=index)
    server = Server(
        uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
    )
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}/" + (f"{secret}/" if secret else "")
    try:
        note(f"serving {folder.resolve()} at {address} (Ctrl-C ends it)")
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # the way to end it
        pass
    finally:
        listening.close()


def _allow_connections() -> None:
    """As many open files as this user may have: each browser's tab holds a few, others wait."""
    with suppress(ImportError, OSError, ValueError):  # not on Windows; not every system allows it
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= LARGEST_PORT:
        raise UsageError(f"--port {port}: no port", hint=f"0 to {LARGEST_PORT}")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no such address"
        raise UsageError(
            f"cannot listen on {host} port {port} ({why})", hint="--port 0 takes a free one"
        ) from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
