"""The navigation: the sections of ``navigation.toml``, with every page in one of them."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

SECTIONS = Path(__file__).with_name("navigation.toml")


class NoPlace(Exception):
    """Pages that no section takes, or that a section names and nobody wrote."""


def navigation(titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """The tree of sections for the pages of ``titles`` (path: heading), as zensical takes it.

    Raises NoPlace if a page is in no section, or a section names a page that does not exist.
    """
    sections = tomllib.loads(SECTIONS.read_text("utf-8"))["section"]
    named = set(_named(sections))
    missing = named - set(titles)
    tree = [_entry(section, titles, named) for section in sections]
    homeless = set(titles) - set(_paths(tree))
    if missing or homeless:
        raise NoPlace(f"named and not there: {sorted(missing)}; in no section: {sorted(homeless)}")
    return tree


def as_toml(tree: list[dict[str, Any]]) -> str:
    """The setting of zensical: inline tables, which look like JSON with another separator."""
    return f"nav = {_toml(tree)}"


def _entry(section: dict[str, Any], titles: Mapping[str, str], named: set[str]) -> dict[str, Any]:
    pages = list(section.get("pages", ()))
    folders = section.get("folders", ())
    pages += [p for p in sorted(titles) if p not in named and _folder(p) in folders]
    parts = [_entry(part, titles, named) for part in section.get("section", ())]
    if len(pages) == 1 and not parts:
        return {section["title"]: pages[0]}
    first = [pages[0]] if pages and pages[0].endswith("/index.md") else []
    rest = [{titles[page]: page} for page in pages[len(first) :]]
    return {section["title"]: first + rest + parts}


def _folder(page: str) -> str:
    return str(PurePosixPath(page).parent)


def _named(sections: list[dict[str, Any]]) -> list[str]:
    own = [page for section in sections for page in section.get("pages", ())]
    return own + [p for section in sections for p in _named(section.get("section", []))]


def _paths(tree: Any) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    below = tree.values() if isinstance(tree, dict) else tree
    return [path for part in below for path in _paths(part)]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(k, ensure_ascii=False)} = {_toml(v)}" for k, v in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(part) for part in value) + "]"
    return json.dumps(value, ensure_ascii=False)
