"""Recordings behind URLs and in object stores, through fsspec where it is installed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pinchpoint.errors import MissingExtra, UnreadableFile, install_hint
from pinchpoint.regex import regex
from pinchpoint.replacing import scratch_folder

_URL = regex(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_FOLDED = regex(r"^([a-z][a-z0-9+.-]+):/+(?=[^/])", re.IGNORECASE)


def is_url(place: str) -> bool:
    """Whether a place is an address rather than a path."""
    return bool(_URL.match(place))


def url_in(path: str | Path) -> str | None:
    """The URL that a path was made of: ``Path`` folds ``s3://bucket`` to ``s3:/bucket``."""
    if isinstance(path, str) and is_url(path):
        return path
    folded = _FOLDED.match(str(path))
    if folded is None or Path(path).exists():
        return None
    return f"{folded[1]}://{'/' if folded[1] == 'file' else ''}{str(path)[folded.end() :]}"


def file_system(url: str) -> tuple[Any, str]:
    """The store that a URL leads to, and the path there. MissingExtra without its driver."""
    by_hand = f"fetch it first: curl -LO {url}" if url.lower().startswith("http") else ""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingExtra(
            f"{url}: reading from a URL or an object store needs fsspec",
            hint=by_hand
            or f"{install_hint('ray', 'fsspec')}; and your store's driver (s3fs, gcsfs, adlfs)",
        ) from None
    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        hint = f"pip install the driver it names{'; or ' if by_hand else ''}{by_hand}"
        raise MissingExtra(f"{url}: {error}", hint=hint) from None
    return system, path


@contextmanager
def local_copy(path: str) -> Iterator[Path]:
    """The file on a local disk for the length of the block; a copy where it is remote."""
    if not is_url(path):
        yield Path(path)
        return
    system, remote = file_system(path)
    with scratch_folder() as scratch:
        target = scratch / (remote.rstrip("/").rsplit("/", 1)[-1] or "recording")
        try:
            system.get_file(remote, str(target))
        except FileNotFoundError:
            raise UnreadableFile(f"{path}: no such file", hint="check the URL") from None
        except Exception as error:  # each store has errors of its own
            raise UnreadableFile(
                f"{path}: {error}", hint="check the URL and the credentials"
            ) from None
        yield target
