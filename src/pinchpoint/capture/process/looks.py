"""Looks at single steps that are in no window: one after the other, told of each edge."""

from typing import Protocol


class Look(Protocol):
    """Is told of each edge, before a window is opened there and after that."""

    @property
    def due(self) -> bool:
        """Whether it has steps, or will have some: others wait for it."""
        ...

    def step_ended(self) -> None:
        """Before."""
        ...

    def step_begins(self) -> None:
        """After."""
        ...


class Looks:
    """All that there are now; one may leave when it is told of an edge."""

    def __init__(self) -> None:
        self._all: list[Look] = []

    def join(self, look: Look) -> None:
        """Behind the others."""
        self._all.append(look)

    def leave(self, look: Look) -> None:
        """If it is there."""
        if look in self._all:
            self._all.remove(look)

    def ended(self) -> None:
        """A step has."""
        for look in tuple(self._all):
            look.step_ended()

    def begins(self) -> None:
        """The next one does."""
        for look in tuple(self._all):
            look.step_begins()

    def others_due(self, look: Look) -> bool:
        """Whether one that came before this one is not over."""
        return any(one.due for one in self._all[: self._all.index(look)])
