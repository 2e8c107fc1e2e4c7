"""A page for each JSON document, from the structures that write it and their comments."""

import ast
import inspect
import io
import pkgutil
import re
import tokenize
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import get_type_hints

import msgspec

_PACKAGES = ("report", "compare", "bench", "hardware", "monitor")
_WORDS = {"str": "text", "int": "integer", "float": "number", "bool": "true or false"}
_WORDS |= {"Any": "anything"}
_SCHEMA = re.compile(r"[a-z][a-z.-]*/\d+")

_INDEX = """\
# JSON documents

What `--json` prints and what lies in folders has a schema with a version, in the field `schema`.
A version's fields keep their names and meanings; a new field may come, and null means not known.
Times are integer nanoseconds unless a name says otherwise.

The documents of a run folder (`pinchpoint.run/1` and others) are described in [the run
folder](../run-folder.md).

| schema | what it is |
|---|---|
"""


def document_pages() -> dict[str, str]:
    """All document pages and their index, by path."""
    found = dict(sorted(_documents()))
    pages = {_path(schema): _page(schema, root) for schema, root in found.items()}
    rows = "".join(f"| [{s}]({_name(s)}.md) | {_first(r)} |\n" for s, r in found.items())
    return pages | {"reference/documents/index.md": _INDEX + rows}


def _documents() -> Iterator[tuple[str, type]]:
    """Every structure with a ``schema`` field that has a default, by that default."""
    for package in _PACKAGES:
        home = import_module(f"pinchpoint.{package}")
        for found in pkgutil.walk_packages(home.__path__, f"{home.__name__}."):
            if ".inside." in found.name or found.name.endswith("pytest_plugin"):
                continue
            module = import_module(found.name)
            for value in vars(module).values():
                if _is_struct(value) and value.__module__ == found.name and _schema(value):
                    yield _schema(value), value


def _is_struct(value: object) -> bool:
    return isinstance(value, type) and (issubclass(value, msgspec.Struct) or is_dataclass(value))


def _fields(struct: type) -> dict[str, object]:
    names = getattr(struct, "__struct_fields__", None) or [f.name for f in fields(struct)]
    kinds = get_type_hints(struct)
    return {name: kinds[name] for name in names}


def _schema(struct: type) -> str:
    if not issubclass(struct, msgspec.Struct):
        return ""
    defaults = {field.name: field.default for field in msgspec.structs.fields(struct)}
    default = defaults.get("schema")
    return default if isinstance(default, str) and _SCHEMA.fullmatch(default) else ""


def _page(schema: str, root: type) -> str:
    parts = [f"# {schema}\n\n{_prose(root)}\n"]
    structs = _reachable(root)
    parts += [_table(struct, {s.__name__ for s in structs}, root) for struct in structs]
    return "\n".join(parts)


def _reachable(root: type) -> list[type]:
    """The root and the structures that its fields are made of, each once."""
    found, waiting = [], [root]
    while waiting:
        struct = waiting.pop(0)
        if struct not in found:
            found.append(struct)
            waiting += [part for kind in _fields(struct).values() for part in _parts(kind)]
    return found


def _parts(kind: object) -> Iterator[type]:
    if _is_struct(kind):
        yield kind
    for inner in getattr(kind, "__args__", ()):
        yield from _parts(inner)


def _table(struct: type, known: set[str], root: type) -> str:
    head = "" if struct is root else f"## {struct.__name__}\n\n{_prose(struct)}\n\n"
    comments = _comments(struct)
    rows = ""
    for name in _fields(struct):
        kind, comment = comments.get(name, ("", ""))
        rows += f"| `{name}` | {_kind(kind, known)} | {_cell(comment)} |\n"
    return f"{head}| field | type | meaning |\n|---|---|---|\n{rows}"


def _comments(struct: type) -> dict[str, tuple[str, str]]:
    """The type as written and the comment of each field, also of inherited ones."""
    found: dict[str, tuple[str, str]] = {}
    for owner in reversed(struct.__mro__):
        if _is_struct(owner) and owner.__module__.startswith("pinchpoint"):
            for line in inspect.getsource(owner).splitlines():
                match = re.match(r"    (\w+): ([^=#]+)", line)
                if match:
                    found[match[1]] = (match[2].strip(), _comment(line))
    return found


def _comment(line: str) -> str:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(line.strip()).readline))
    except tokenize.TokenError:  # the field goes on in the next line
        return ""
    return next((t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT), "")


def _kind(annotation: str, known: set[str]) -> str:
    """A type as readers of JSON say it: lists, text, null."""
    return _said(ast.parse(annotation, mode="eval").body, known) if annotation else ""


def _said(node: ast.expr, known: set[str]) -> str:
    match node:
        case ast.BinOp(left=left, right=right):
            return f"{_said(left, known)} or {_said(right, known)}"
        case ast.Constant(value=str(text)):
            return _kind(text, known)
        case ast.Name(id=name) if name in known:
            return f"[{name}](#{name.lower()})"
        case ast.Name(id=name):
            return _WORDS.get(name, name)
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, value])):
            return f"object of {_inner(value, known)}"
        case ast.Subscript(slice=ast.Tuple(elts=[item, ast.Constant()])):
            return f"list of {_inner(item, known)}"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=items)):
            return f"({', '.join(_said(item, known) for item in items)})"
        case ast.Subscript(slice=item):
            return f"list of {_inner(item, known)}"
    return "null" if isinstance(node, ast.Constant) else "document"


def _inner(node: ast.expr, known: set[str]) -> str:
    text = _said(node, known)
    return f"({text})" if isinstance(node, ast.BinOp) else text


def _prose(struct: type) -> str:
    return (inspect.getdoc(struct) or "").replace("``", "`")


def _first(struct: type) -> str:
    return " ".join(_prose(struct).split("\n\n")[0].split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("``", "`").replace("<", "&lt;")


def _name(schema: str) -> str:
    name = schema.partition("/")[0].removeprefix("pinchpoint.")
    return name.replace(".", "-")


def _path(schema: str) -> str:
    return f"reference/documents/{_name(schema)}.md"
