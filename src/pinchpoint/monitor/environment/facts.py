"""Collects facts one by one; what cannot be read becomes null with a reason."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


class Unreadable(Exception):
    """A fact that this machine or process does not tell; the text says why."""


class Facts:
    """Named values under a path, with the reasons for those that are null.

    >>> facts = Facts("host")
    >>> facts.read("kernel", platform.release)
    >>> facts.values, facts.unknown
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.unknown: dict[str, str] = {}

    def read(self, name: str, how: Callable[[], Any]) -> None:
        """Store ``how()``; if it raises or gives None, store null and the reason."""
        try:
            value = how()
        except Unreadable as why:
            self.no(name, str(why))
        except Exception as error:  # any driver or file-system failure is a reason, never a crash
            self.no(name, f"{type(error).__name__}: {error}"[:200])
        else:
            if value is None:
                self.no(name, "not told by the system")
            else:
                self.values[name] = value

    def no(self, name: str, why: str) -> None:
        """Store null with its reason."""
        self.values[name] = None
        self.unknown[f"{self.path}.{name}"] = why

    def put(self, name: str, value: Any) -> None:
        """Store a value that is known."""
        self.values[name] = value


def file_text(path: str | Path) -> str:
    """The stripped text of a small system file; Unreadable if it is not there."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from None


def file_number(path: str | Path) -> int:
    """The whole number in a small system file."""
    text = file_text(path)
    try:
        return int(text)
    except ValueError:
        raise Unreadable(f"{path} holds {text[:40]!r}, not a number") from None
