"""The options of answers that are kept or passed on, for every command that has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pinchpoint.cli.output import write_file, wrote
from pinchpoint.cli.parameter import Parameter

Force = Annotated[bool, Parameter(negative="")]
Redact = Annotated[bool, Parameter(negative="")]  # leave out what is private


@Parameter(name="*")
@dataclass(frozen=True)
class Page:
    """The page to write, and what is left out.

    Parameters
    ----------
    html
        Also write one self-contained page to this file.
    force
        Replace a file of another kind that is there. A recording is never replaced.
    redact
        For passing it on: no folders, arguments or settings, in the page and in the answer.
    """

    html: Path | None = None
    force: Force = False
    redact: Redact = False

    def write(self, text: str, inputs: Sequence[Path]) -> None:
        """Write the page and say so. Raises UsageError where it would replace an input."""
        if self.html is not None:
            write_file(self.html, text, inputs=inputs, force=self.force)
            wrote(self.html)


NO_PAGE = Page()
