"""Regular expressions that are compiled when they may match.

A diagnosis imports some 300 of them and asks half of them, mostly of names that none of their
words is in; compiling these took a twelfth of its time. ``regex`` is called as ``re.compile`` is,
and what it gives is used as a compiled pattern; a mistake in the expression shows when it is
compiled (every one of the package is, in the tests). Before that, words that a match has are
looked for in the text.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    regex = re.compile
else:

    def regex(pattern: str | bytes, flags: int = 0) -> Any:
        """A pattern that is not compiled yet."""
        return _Late(pattern, flags)


# Texts after which an expression is compiled that none of them matched: looking for its words
# takes as long as asking the compiled one, and a twentieth to a tenth of compiling it.
_TEXTS = 64


class _Late:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern, self._flags, self._texts = pattern, flags, 0

    def __getattr__(self, name: str) -> Any:
        """Asked for what is not there yet: the first time that this method is used."""
        if name == "_words":
            text = self.pattern
            self._words = words_of(text) if isinstance(text, str) and not self._flags else ()
            return self._words
        if name in ("search", "match", "fullmatch") and self._texts < _TEXTS and self._words:
            return self._maybe(name)
        value = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, value)
        return value

    def _maybe(self, name: str) -> Any:
        def ask(text: str, *rest: int) -> Any:
            self._texts += 1
            if self._texts < _TEXTS:
                for any_of in self._words:
                    if not any(word in text for word in any_of):
                        return None
            self.__dict__.pop(name, None)
            self._texts = _TEXTS
            return getattr(self, name)(text, *rest)

        setattr(self, name, ask)
        return ask


# ------------------------------------------------------------------------------------------------
# The words that whatever matches an expression has.


Words = tuple[tuple[str, ...], ...]
"""Of each of these, at least one is in every text that matches."""

_FLAGS = r"\(\?[aiLmsux-]|\(\?\("  # and groups that depend on others
_NUMBERS = r"\\[xuUN0-9]"  # characters that are said by their number, and groups that come again
_UNKNOWN = re.compile(f"{_FLAGS}|{_NUMBERS}")
_TOKEN = re.compile(
    r"(?P<plain>[\w :/<>,=@&~;\"'-]+)|\\(?P<escaped>[^\w\s])|(?P<bar>\|)|(?P<close>\))"
    r"|(?P<open>\((?:\?:)?)(?P<special>\?)?|(?P<maybe>[?*]|\{[\d,]*\}?)"
    r"|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.",
    re.DOTALL,
)


class _Level:
    """What one group, or the whole, was read to ask so far."""

    def __init__(self, *, tells: bool = True) -> None:
        self.tells = tells
        self.run = ""
        self.needed: list[tuple[str, ...]] = []
        self.before: list[list[tuple[str, ...]]] = []  # of its alternatives that were read
        self.last = 0  # words from here on are asked by what stands last, a group

    def end_run(self) -> None:
        if len(self.run) > 1:  # one letter is in most names
            self.needed.append((self.run,))
        self.run, self.last = "", len(self.needed)

    def end_alternative(self) -> None:
        self.end_run()
        self.before.append(self.needed)
        self.needed, self.last = [], 0

    def drop_last(self) -> None:
        if self.run:
            self.run = self.run[:-1]
            self.end_run()
        del self.needed[self.last :]

    def words(self) -> list[tuple[str, ...]]:
        self.end_alternative()
        if not self.tells or not all(self.before):
            return []
        if len(self.before) == 1:
            return self.before[0]
        rarest = (max(one, key=lambda any_of: min(map(len, any_of))) for one in self.before)
        return [tuple(word for any_of in rarest for word in any_of)]


def words_of(pattern: str) -> Words:
    """What is told of an expression without flags by its letters; empty: nothing.

    What may be missing tells nothing, nor do groups that begin with ``(?``, but ``(?:``.
    """
    if _UNKNOWN.search(pattern):
        return ()
    levels = [_Level()]
    for token in _TOKEN.finditer(pattern):
        kind, level = token.lastgroup, levels[-1]
        if kind in ("plain", "escaped"):
            level.run += token[kind]
        elif kind == "maybe":
            level.drop_last()
        elif kind == "bar":
            level.end_alternative()
        elif kind in ("open", "special"):
            level.end_run()
            levels.append(_Level(tells=kind == "open"))
        elif kind == "close" and len(levels) > 1:
            found, level = levels.pop().words(), levels[-1]
            level.last = len(level.needed)
            level.needed += found
        else:
            level.end_run()
    return tuple(levels[0].words()) if len(levels) == 1 else ()
