"""A page for each command, from the same source as its ``--help``."""

import re

from pinchpoint.cli.dispatch import app_of
from pinchpoint.cli.help import commands

_INDEX = """\
# Commands

`pinchpoint COMMAND --help` prints these pages. [Exit codes](../../exit-codes.md) are the same
everywhere.

| command | what it does |
|---|---|
"""


def command_pages() -> dict[str, str]:
    """All command pages and their index, by path."""
    pages = {f"reference/commands/{name}.md": _page(name) for name in commands()}
    rows = "".join(f"| `pinchpoint {n}` | {line} |\n" for n, line in commands().items())
    return pages | {"reference/commands/index.md": _INDEX + rows}


def _page(name: str) -> str:
    text = app_of(name).generate_docs(output_format="markdown")
    text = re.sub(r"## Table of Contents\n+(?: *- .*\n)+\n", "", text)  # the site has one
    text = text.replace(f"pinchpoint {name} {name}", f"pinchpoint {name}").replace("<", "&lt;")
    return "\n".join(line.rstrip() for line in text.split("\n")) + "\n"
