"""How the help of a command looks: plain text in two columns, as wide as the terminal."""

import io
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

LABEL_WIDTH = 22  # a longer label gets a line of its own
NARROW = 60  # below, labels get lines of their own
_LEAST_WIDTH = 30  # narrower terminals wrap by themselves
_UNWRAPPED = 100_000
_TITLES = {"Parameters": "options"}


class HelpText:
    """A formatter of cyclopts."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        """One block: arguments, options or subcommands."""
        if panel.entries:
            title = _plain(panel.title)
            self._write(console, f"{_TITLES.get(title, title.lower())}:")
            for entry in panel.entries:
                self._write(console, _entry(entry, max(console.width, _LEAST_WIDTH)))
            self._write(console, "")

    def render_usage(self, console: "Console", options: "ConsoleOptions", usage: Any) -> None:
        """The first line."""
        text = _plain(usage).removeprefix("Usage:").strip()
        self._write(console, f"usage: {text}\n")

    def render_description(
        self, console: "Console", options: "ConsoleOptions", description: Any
    ) -> None:
        """What the command does: paragraphs of the docstring."""
        paragraphs = [" ".join(p.split()) for p in _plain(description).split("\n\n")]
        for paragraph in filter(None, paragraphs):
            width = max(console.width, _LEAST_WIDTH)
            self._write(console, textwrap.fill(paragraph, width, break_on_hyphens=False) + "\n")

    def _write(self, console: "Console", text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _entry(entry: "HelpEntry", width: int) -> str:
    label = "  " + ", ".join(entry.display_labels_with_metavar)
    said = [_plain(entry.description)]
    if entry.default not in (None, "False", "[]"):
        said.append(f"[default: {entry.default}]")
    said += ["[required]"] if entry.required else []
    indent = " " * (6 if width < NARROW else LABEL_WIDTH + 2)
    lines = textwrap.wrap(" ".join(" ".join(said).split()), width - len(indent) - 1) or [""]
    if len(label) > LABEL_WIDTH or width < NARROW:
        return "\n".join([label, *(f"{indent}{line}" for line in lines)]).rstrip()
    first, *rest = lines
    return "\n".join([f"{label:{LABEL_WIDTH}}  {first}", *(f"{indent}{r}" for r in rest)]).rstrip()


def _plain(text: Any) -> str:
    """The words of anything that rich can show, unwrapped."""
    if text is None or isinstance(text, str):
        return (text or "").strip().replace("``", "")
    from rich.console import Console

    console = Console(file=io.StringIO(), width=_UNWRAPPED, color_system=None)
    with console.capture() as words:
        console.print(text, highlight=False, markup=False)
    lines = (line.rstrip() for line in words.get().splitlines())
    return "\n".join(lines).strip().replace("``", "")
