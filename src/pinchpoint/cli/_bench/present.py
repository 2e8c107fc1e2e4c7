"""Shows a page in the format that was asked for."""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.cli.output import look, note, show, show_json, write_file

if TYPE_CHECKING:
    import msgspec

    from pinchpoint.cli._bench.options import Showing
    from pinchpoint.report.pages.result import ResultPage


def present(document: "msgspec.Struct", page: "ResultPage", showing: "Showing") -> None:
    """Write the result to standard output, and to the files that were asked for."""
    chosen = showing.chosen()
    if chosen == "json":
        from pinchpoint.bench.metrics import encode

        show_json(encode(document))
    elif chosen == "markdown":
        from pinchpoint.report import markdown
        from pinchpoint.report.pages.result import blocks

        show(markdown.render(blocks(page)))
    elif chosen == "github":
        _to_github(page)
    else:
        from pinchpoint.report import terminal
        from pinchpoint.report.pages.result import blocks

        show(terminal.render(blocks(page), look()))
    if showing.junit:
        from pinchpoint.report import junit

        write_file(showing.junit, junit.render(page))


def _to_github(page: "ResultPage") -> None:
    from pinchpoint.report import github, markdown
    from pinchpoint.report.pages.result import blocks

    show(github.result_log(page, token=secrets.token_hex()))
    for variable, text in (
        ("GITHUB_STEP_SUMMARY", markdown.render(blocks(page))),
        ("GITHUB_OUTPUT", github.result_outputs(page)),
    ):
        if name := os.environ.get(variable):
            try:
                with Path(name).open("a", encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                note(f"note: {variable}: {error.strerror}")
