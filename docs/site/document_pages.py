"""A page for each JSON document, from the structures that write it and their comments."""

import inspect
import io
import pkgutil
import re
import tokenize
from collections.abc import Iterator
from importlib import import_module

import msgspec

_PACKAGES = ("report", "compare", "bench", "hardware", "monitor")
_SCHEMA = re.compile(r"[a-z][a-z.-]*/\d+")

_INDEX = """\
# JSON documents

What `--json` prints and what lies in folders has a schema with a version, in the field `schema`.
A version's fields keep their names and meanings; a new field may come, and null means not known.
Times are integer nanoseconds unless a name says otherwise.

| schema | what it is |
|---|---|
"""


def document_pages() -> dict[str, str]:
    """All document pages and their index, by path."""
    found = dict(sorted(_documents()))
    pages = {_path(schema): _page(schema, root) for schema, root in found.items()}
    rows = "".join(f"| [{s}]({_name(s)}.md) | {_first(r)} |\n" for s, r in found.items())
    return pages | {"reference/documents/index.md": _INDEX + rows}


def _documents() -> Iterator[tuple[str, type[msgspec.Struct]]]:
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
    return isinstance(value, type) and issubclass(value, msgspec.Struct)


def _schema(struct: type[msgspec.Struct]) -> str:
    fields = {field.name: field.default for field in msgspec.structs.fields(struct)}
    default = fields.get("schema")
    return default if isinstance(default, str) and _SCHEMA.fullmatch(default) else ""


def _page(schema: str, root: type[msgspec.Struct]) -> str:
    parts = [f"# {schema}\n\n{_prose(root)}\n"]
    structs = _reachable(root)
    parts += [_table(struct, {s.__name__ for s in structs}, root) for struct in structs]
    return "\n".join(parts)


def _reachable(root: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """The root and the structures that its fields are made of, each once."""
    found, waiting = [], [root]
    while waiting:
        struct = waiting.pop(0)
        if struct not in found:
            found.append(struct)
            waiting += [part for f in msgspec.structs.fields(struct) for part in _parts(f.type)]
    return found


def _parts(kind: object) -> Iterator[type[msgspec.Struct]]:
    if _is_struct(kind):
        yield kind
    for inner in getattr(kind, "__args__", ()):
        yield from _parts(inner)


def _table(struct: type[msgspec.Struct], known: set[str], root: type[msgspec.Struct]) -> str:
    head = "" if struct is root else f"## {struct.__name__}\n\n{_prose(struct)}\n\n"
    comments = _comments(struct)
    rows = ""
    for field in msgspec.structs.fields(struct):
        kind, comment = comments.get(field.name, ("", ""))
        rows += f"| `{field.name}` | {_kind(kind, known)} | {_cell(comment)} |\n"
    return f"{head}| field | type | meaning |\n|---|---|---|\n{rows}"


def _comments(struct: type[msgspec.Struct]) -> dict[str, tuple[str, str]]:
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


def _kind(kind: str, known: set[str]) -> str:
    text = kind.replace("|", "\\|").replace("[", "\\[").replace("]", "\\]")
    return re.sub(
        r"\w+", lambda m: f"[{m[0]}](#{m[0].lower()})" if m[0] in known else m[0], text
    ).replace("None", "null")


def _prose(struct: type[msgspec.Struct]) -> str:
    return (inspect.getdoc(struct) or "").replace("``", "`")


def _first(struct: type[msgspec.Struct]) -> str:
    return " ".join(_prose(struct).split("\n\n")[0].split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("``", "`").replace("<", "&lt;")


def _name(schema: str) -> str:
    name = schema.partition("/")[0].removeprefix("pinchpoint.")
    return name.replace(".", "-")


def _path(schema: str) -> str:
    return f"reference/documents/{_name(schema)}.md"
