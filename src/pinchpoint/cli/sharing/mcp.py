"""Answer an assistant over the Model Context Protocol, on standard input and output."""

import os
import signal
from pathlib import Path

from pinchpoint.errors import UsageError


def command(root: Path = Path(), /) -> int:
    """Run a server with read-only tools until the assistant goes away. Needs the extra mcp.

    An assistant starts it itself, for example: claude mcp add pinchpoint -- pinchpoint mcp FOLDER

    Parameters
    ----------
    root
        Only recordings below this folder can be asked about.
    """
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder", hint="pinchpoint mcp FOLDER")
    from pinchpoint.assistant.questions import client, hear_half_characters, server

    made = server(root)
    end = hear_half_characters()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, frame: end())
    made.run("stdio")
    if client.waits():  # for an answer that nobody waits for; interpreters wait for such threads
        os._exit(0)
    return 0
