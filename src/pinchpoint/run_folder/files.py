"""Writes and reads the JSON documents of a run folder.

Folders come from other versions, from disks that were full and from strangers. A document that is
no JSON is refused; a field that has the wrong type is left out, with one sentence that says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from pinchpoint.errors import UnreadableFile
from pinchpoint.replacing import replacing
from pinchpoint.run_folder.documents import Part

_LARGEST_DOCUMENT_BYTES = 32 << 20  # a run of a week with thousands of steps has a tenth of it

Document = TypeVar("Document", bound=Part)


@dataclass(frozen=True)
class Found(Generic[Document]):
    """A document, the text that it was made from as plain data, and what is wrong with it."""

    document: Document
    plain: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def write(path: Path, document: Part) -> None:
    """Write the whole document or nothing: a reader never sees half of it. Raises OSError."""
    with replacing(path) as beside:
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))


def read(path: Path, kind: type[Document]) -> Found[Document]:
    """The document; UnreadableFile if the file is missing, too large, or no JSON object."""
    plain = _plain(path)
    try:
        return Found(msgspec.convert(plain, kind), plain)
    except msgspec.ValidationError:
        return _without_wrong_fields(path, plain, kind)


def read_if_there(path: Path, kind: type[Document]) -> Found[Document]:
    """The same, but all defaults where there is no such file."""
    return read(path, kind) if path.exists() else Found(kind())


def _plain(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():
            raise UnreadableFile(f"{path}: a folder, pipe or device", hint="copy it again")
        if path.stat().st_size > _LARGEST_DOCUMENT_BYTES:
            raise UnreadableFile(f"{path}: far too large for what it should hold")
        found = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        raise UnreadableFile(f"{path}: no such file", hint="copy the whole run folder") from None
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror or error}", hint="check it") from None
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        raise UnreadableFile(f"{path}: no JSON, or cut off", hint="copy it again") from None
    if not isinstance(found, dict):
        raise UnreadableFile(f"{path}: not the document that it should be", hint="copy it again")
    return found


def _without_wrong_fields(
    path: Path, plain: Mapping[str, Any], kind: type[Document]
) -> Found[Document]:
    kept, problems = {}, []
    for one in msgspec.structs.fields(kind):
        if one.name not in plain:
            continue
        try:
            kept[one.name] = msgspec.convert(plain[one.name], one.type)
        except msgspec.ValidationError as error:
            problems.append(f"{path.name}: {one.name} was left out: {error}")
    return Found(kind(**kept), plain, tuple(problems))
