"""Names of a column in the room that it has: of two that differ, no two look alike."""

from collections.abc import Sequence

from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.regex import regex
from pinchpoint.report.plain import middle_cut, plain

_SIGNATURE = regex(r"^void |^_Z|::.*[<(]|\w<.*>\s*\(|^\w+\(.*\)")  # how C++ spells a kernel
ROOM = 40  # columns: of 80, beside a share, a total and a count
_USUAL_ROOM = 20  # as any table keeps for its first column
_WORDS = regex(
    r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9]{3,15}(?![A-Za-z0-9])"
)  # unrolled, nocast, float, BFloat16
_SAY_NOTHING = {"const", "void", "native", "lambda", "char", "array", "unsigned", "long",
                "impl", "kernel", "operator", "instance"}  # fmt: skip
_CUT = "\0"  # behind a name that the file cut; no text of a document has it
_KEPT = 3  # characters before a difference, to see where it is


def room_of(names: Sequence[str]) -> int:
    """Columns that a table keeps for these names, whatever its figures need."""
    wide = any(_SIGNATURE.search(name) or len(name) > ROOM for name in names)
    return ROOM if wide else _USUAL_ROOM


def told_apart(names: Sequence[str], room: int) -> list[str]:
    """Short names of at most ``room`` characters, in order.

    Kernels keep the name of their own function. Those that would look alike get a word that the
    others of them lack, else their place among them; so do those that the file cut to the same.
    """
    names = [
        f"{name}{_CUT * names[:at].count(name)}" if name.endswith("…") else name
        for at, name in enumerate(names)
    ]
    shorts = {name: _short(name) for name in names}
    shown = {name: _in_room(short, room) for name, short in shorts.items()}
    for alike in _groups(shown):
        shown |= _by_difference({name: shorts[name] for name in alike}, room)
    for alike in _groups(shown):
        for number, name in enumerate(alike, 1):
            mark = _word_of(name, alike) or f"#{number}"
            shown[name] = f"{_in_room(shorts[name], room - len(mark) - 1)} {mark}"
    for alike in _groups(shown):
        for number, name in enumerate(alike, 1):
            shown[name] = f"{_in_room(shorts[name], room - len(str(number)) - 2)} #{number}"
    return [shown[name] for name in names]


def _in_room(short: str, room: int) -> str:
    """Where it does not fit, what a shell does without the word for the shell."""
    return middle_cut(short if len(short) <= room else short.rpartition(": ")[2], room)


def _short(name: str) -> str:
    name = name.rstrip(_CUT)
    return plain(short_kernel_name(name) if _SIGNATURE.search(name) else name)


def _groups(shown: dict[str, str]) -> list[list[str]]:
    """Names that look the same."""
    found: dict[str, list[str]] = {}
    for name, text in shown.items():
        found.setdefault(text, []).append(name)
    return [names for names in found.values() if len(names) > 1]


def _by_difference(shorts: dict[str, str], room: int) -> dict[str, str]:
    """Their beginnings, and what stands where they begin to differ."""
    texts = list(shorts.values())
    same = len(_prefix(min(texts), max(texts)))
    head = room // 3
    if max(map(len, texts)) <= room or same <= head + 1:
        return {name: middle_cut(text, room) for name, text in shorts.items()}
    at = max(same - _KEPT, head)
    return {
        name: f"{text[:head]}…{plain(text[at:], room - head - 1)}" for name, text in shorts.items()
    }


def _prefix(one: str, other: str) -> str:
    end = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    return one[:end] if end is not None else min(one, other, key=len)


def _word_of(name: str, alike: Sequence[str]) -> str:
    """A word of the name that none of the others has; empty where each shares all of its words."""
    others = {word for other in alike if other != name for word in _WORDS.findall(other)}
    mine = (word for word in _WORDS.findall(name) if word not in others | _SAY_NOTHING)
    return next((f"({word})" for word in mine), "")


__all__ = ["ROOM", "room_of", "told_apart"]
