"""Links of the site: between pages, and from each rule and command that a page names.

A page in ``docs/`` writes `` `sync-in-loop` `` or `` `pinchpoint memory` ``; it is readable where
it lies, and on the site the words lead to the page about them.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from pinchpoint.cli.help import commands
from pinchpoint.diagnosis.registry import rule_ids

_FENCE = re.compile(r"(^```.*?^```[^\n]*$)", re.M | re.S)
_LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
_CODE = re.compile(r"(?<![\[`])`([^`\n]+)`(?![`\]])")


def relink(text: str, source: Path, page: str, places: Mapping[Path, str]) -> str:
    """``text`` with links between files turned into links between pages.

    ``places`` tells the page of each file. A link to a file that is no page becomes its words.
    """

    def new(match: re.Match[str]) -> str:
        words, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, mark, anchor = target.partition("#")
        place = places.get((source.parent / path).resolve())
        return f"{words}({relative(place, page)}{mark}{anchor})" if place else words[1:-1]

    return _outside_code(text, lambda part: _LINK.sub(new, part))


def link_names(text: str, page: str) -> str:
    """``text`` with each rule and command that it names in code linked to its page."""

    def new(match: re.Match[str]) -> str:
        target = _target(match[1])
        here = target is None or target.partition("#")[0] == page
        return match[0] if here else f"[{match[0]}]({relative(target, page)})"

    def line(text: str) -> str:
        return text if text.startswith("#") else _CODE.sub(new, text)

    return _outside_code(text, lambda part: "\n".join(map(line, part.split("\n"))))


def named_rules(text: str) -> set[str]:
    """The rules that a page names in code."""
    return {word for word in _CODE.findall(text) if word in rule_ids()}


def relative(target: str, page: str) -> str:
    """The link from one page of the site to another."""
    return os.path.relpath(target, PurePosixPath(page).parent).replace(os.sep, "/")


def _target(code: str) -> str | None:
    if code in rule_ids():
        return f"reference/rules/{code}.md"
    words = code.split()
    if len(words) < 2 or words[0] != "pinchpoint" or words[1] not in commands():
        return None
    subcommand = words[1] == "bench" and len(words) > 2 and words[2].isalpha()
    anchor = f"#pinchpoint-bench-{words[2]}" if subcommand else ""
    return f"reference/commands/{words[1]}.md{anchor}"


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    parts = _FENCE.split(text)
    return "".join(p if i % 2 else change(p) for i, p in enumerate(parts))
