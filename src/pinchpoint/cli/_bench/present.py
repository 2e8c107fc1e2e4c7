"""Shows a page in the format that was asked for."""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.cli.output import note, show, show_json, show_plainly, write_file

if TYPE_CHECKING:
    import msgspec

    from pinchpoint.cli._bench.options import Showing
    from pinchpoint.report.benchmarks.page import Page


def present(document: "msgspec.Struct", page: "Page", showing: "Showing") -> None:
    """Write the result to standard output, and to the files that were asked for."""
    chosen = showing.chosen()
    if chosen == "json":
        from pinchpoint.bench.metrics import encode

        show_json(encode(document))
    elif chosen == "markdown":
        from pinchpoint.report.benchmarks import markdown

        show(markdown.render(page))
    elif chosen == "github":
        _to_github(page)
    else:
        from pinchpoint.report.benchmarks import terminal

        show_plainly(terminal.render(page))
    if showing.junit:
        from pinchpoint.report.benchmarks import junit

        write_file(showing.junit, junit.render(page))


def _to_github(page: "Page") -> None:
    from pinchpoint.report.benchmarks import github, markdown

    show(github.log(page, token=secrets.token_hex()))
    for variable, text in (
        ("GITHUB_STEP_SUMMARY", markdown.render(page)),
        ("GITHUB_OUTPUT", github.outputs(page)),
    ):
        if name := os.environ.get(variable):
            try:
                with Path(name).open("a", encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                note(f"note: {variable}: {error.strerror}")
