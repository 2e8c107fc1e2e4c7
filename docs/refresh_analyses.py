"""Writes docs/reference/analyses.md from the source of the analyses; a test compares.

An analysis is a function of ``pinchpoint.analysis`` whose answer is remembered once per trace. What
it reads and which others it uses is not declared but found: every name in its body, and in the
bodies of what those names stand for, up to the next analysis. So the page cannot say less than the
code does. Its order is the order of the imports, lower rooms first.
"""

import ast
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from pinchpoint.trace import Trace

PAGE = Path(__file__).parent / "reference/analyses.md"
SOURCE = Path(__file__).parents[1] / "src"
ROOT = "pinchpoint.analysis"
FOLLOWED = (ROOT, "pinchpoint.trace")  # nothing else takes a trace apart below the rules
# Where the recording is from, and the text that columns point to: every analysis may use these.
_COMMON = {"source", "names", "origin_ns"}
_TRACE = "pinchpoint.trace.trace"  # annotations name it everywhere
READABLE = {field.name for field in dataclasses.fields(Trace)} - _COMMON

_HEAD = """\
# Analyses

Every question about a trace that is answered once and remembered, lowest first: what it reads of
the [tables](tables.md) and other facts of a recording, by itself or through plain functions, and
which other analyses it uses. This page is written by `docs/refresh_analyses.py` from the source.
"""


class Place(NamedTuple):
    """A top-level name of a module."""

    module: str
    name: str


class Module(NamedTuple):
    """What a module defines at its top level, and what it takes from others."""

    defined: Mapping[str, ast.stmt]
    imported: Mapping[str, Place]  # an empty name: the module itself
    modules: frozenset[str]  # modules that it imports anything of
    text: ast.Module


class Analysis(NamedTuple):
    """One analysis, and what it touches without its other analyses."""

    place: Place
    question: str
    reads: frozenset[str]
    uses: frozenset[Place]


@cache
def modules() -> dict[str, Module]:
    """All modules that are followed."""
    found = {}
    for package in FOLLOWED:
        for path in sorted((SOURCE / package.replace(".", "/")).rglob("*.py")):
            name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return {name: _read(path, found) for name, path in found.items()}


def _read(path: Path, known: Mapping[str, Path]) -> Module:
    text = ast.parse(path.read_text("utf-8"))
    defined = {name: node for node in text.body for name in _names_of(node)}
    imported = {}
    for node in ast.walk(text):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(FOLLOWED):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                place = Place(whole, "") if whole in known else Place(str(node.module), alias.name)
                imported[alias.asname or alias.name] = place
    return Module(defined, imported, frozenset(p.module for p in imported.values()), text)


def _names_of(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    for target in targets:
        yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name)) if target else ()


def resolved(place: Place) -> Place | None:
    """Where a name is defined, packages that pass it on looked through; None: not followed."""
    module = modules().get(place.module)
    if module is None or place.name in module.defined:
        return place if module else None
    onward = module.imported.get(place.name)
    return resolved(onward) if onward is not None and onward != place else None


def referred(place: Place) -> Iterator[Place]:
    """Every top-level name that the definition of a name mentions; local names hide others."""
    module = modules()[place.module]
    node = module.defined[place.name]
    hidden = set(_local_names(node))
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id not in hidden:
            yield from filter(None, [resolved(Place(place.module, part.id))])
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            onward = module.imported.get(part.value.id)
            if onward is not None and not onward.name:
                yield from filter(None, [resolved(Place(onward.module, part.attr))])


def _local_names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef):
        for part in ast.walk(node):
            if isinstance(part, ast.arg):
                yield part.arg
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id


def reads(place: Place) -> set[str]:
    """What a definition takes of a trace: attributes of what is annotated as one."""
    node = modules()[place.module].defined[place.name]
    traces = {
        part.arg
        for part in ast.walk(node)
        if isinstance(part, ast.arg) and part.annotation and "Trace" in ast.unparse(part.annotation)
    }
    return {
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and part.attr in READABLE
        and (getattr(part.value, "id", "") in traces or getattr(part.value, "attr", "") == "trace")
    }


def is_analysis(place: Place) -> bool:
    """Whether its answer is remembered."""
    node = modules()[place.module].defined[place.name]
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(decorator) == "once_per_trace" for decorator in node.decorator_list
    )


@cache
def analyses() -> dict[Place, Analysis]:
    """All analyses, by where they are defined."""
    places = [Place(m, n) for m, module in modules().items() for n in module.defined]
    return {p: _analysis(p) for p in places if p.module.startswith(ROOT) and is_analysis(p)}


def _analysis(place: Place) -> Analysis:
    node = modules()[place.module].defined[place.name]
    assert isinstance(node, ast.FunctionDef)
    question = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    uses, inside, open_ends = set(), {place}, [place]
    while open_ends:
        for onward in referred(open_ends.pop()):
            if onward != place and is_analysis(onward):
                uses.add(onward)
            elif onward not in inside and onward.module != _TRACE:
                inside.add(onward)
                open_ends.append(onward)
    taken = set().union(*map(reads, inside))
    return Analysis(place, question, frozenset(taken), frozenset(uses))


def all_reads(place: Place) -> set[str]:
    """What an analysis reads, its other analyses included."""
    found = analyses()[place]
    return set(found.reads).union(*map(all_reads, found.uses))


def room_of(module: str) -> str:
    """The package that a module of the analyses lies in; one in none is a room of its own."""
    is_package = (SOURCE / module.replace(".", "/")).is_dir()
    room = module if is_package else module.rpartition(".")[0]
    return (module if room == ROOT else room).removeprefix(f"{ROOT}.")


def ordered(of: Callable[[str], str]) -> list[str]:
    """Names of modules or their rooms, lowest first. Raises graphlib.CycleError for a circle."""
    graph: dict[str, set[str]] = {}
    for name in filter(lambda n: n.startswith(f"{ROOT}."), modules()):
        below = {of(m) for m in modules()[name].modules if m.startswith(f"{ROOT}.")}
        graph.setdefault(of(name), set()).update(below - {of(name)})
    return list(TopologicalSorter({k: sorted(v) for k, v in sorted(graph.items())}).static_order())


def text() -> str:
    """The page."""
    modules_up, rooms_up = ordered(str), ordered(room_of)
    heights = {name: (rooms_up.index(room_of(name)), at) for at, name in enumerate(modules_up)}
    uses = {place: sorted(found.uses) for place, found in sorted(analyses().items())}
    bottom_up = sorted(TopologicalSorter(uses).static_order(), key=lambda p: heights[p.module])
    parts, module = [_HEAD], ""
    for place in bottom_up:
        if place.module != module:
            module = place.module
            parts.append(f"\n## {module.removeprefix(f'{ROOT}.')}\n")
        parts.append(_entry(analyses()[place]))
    return "".join(parts)


def _entry(found: Analysis) -> str:
    said = f"\n**{found.place.name}**: {found.question.replace('``', '`')}\n"
    lists = (("reads", sorted(found.reads)), ("uses", sorted(p.name for p in found.uses)))
    items = [f"- {what} {', '.join(f'`{n}`' for n in names)}\n" for what, names in lists if names]
    return said + ("\n" + "".join(items) if items else "")


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
