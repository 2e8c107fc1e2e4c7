"""Text from a file, made safe to show: one line, no control characters, bounded length.

Names in a recording are whatever the recorded program chose. Control characters can move a
terminal's cursor or recolour it, direction marks can make a line read as another one, and a name
may have megabytes.
"""

import re

from pinchpoint.regex import regex

LIMIT = 200  # characters; longer names say no more to a reader and break every layout
REMARK_LIMIT = 2000  # of a remark or an error, whose command is to be copied whole

# Controls after ASCII, marks of direction, invisible joiners and tags. JSON itself escapes those
# before the space.
_UNSEEN = regex(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)

_ASCII = str.maketrans(
    {
        "→": "->",
        "−": "-",
        "·": "-",
        "×": "x",
        "…": "~",  # one column, so that tables stay aligned
        **dict(zip("░▒▓█", ".:*#", strict=True)),
        "–": "-",
        "—": "-",
        "µ": "u",
        "─": "-",
        "│": "|",
        **dict.fromkeys("╭╮╰╯┌┐└┘├┤", "+"),
        **dict(zip("▁▂▃▄▅▆▇", "..::==#", strict=True)),
        "≤": "<=",
        "≥": ">=",
        "‘": "'",
        "’": "'",
        "“": '"',
        "”": '"',
    }
)


def plain(text: str, limit: int = LIMIT) -> str:
    """``text`` as one printable line of at most ``limit`` characters.

    White space of any kind becomes a space; other characters that do not print become U+FFFD.
    """
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(_visible(character) for character in cut)


def middle_cut(text: str, limit: int) -> str:
    """``text`` in at most ``limit`` characters, its middle left out: names of kernels differ at
    their ends as often as at their beginnings."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def ascii_only(text: str) -> str:
    """``text`` for a terminal that shows nothing but ASCII."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def escaped(json: str) -> str:
    """JSON that says the same, without characters that steer a terminal or turn text around."""
    return _UNSEEN.sub(_as_escape, json)


def one_line(text: str) -> str:
    """``text`` of any length without characters that do not print."""
    return text if text.isprintable() else "".join(map(_visible, text))


def _as_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else "\ufffd"
