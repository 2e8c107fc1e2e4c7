"""Answer an assistant over the Model Context Protocol, on standard input and output."""

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
    from pinchpoint.assistant.questions import hear_half_characters, server

    made = server(root)
    hear_half_characters()
    made.run("stdio")
    return 0
