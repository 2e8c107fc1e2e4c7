"""Text from a file, made safe to show: one line, no control characters, bounded length.

Names in a recording are whatever the recorded program chose. Control characters can move a
terminal's cursor or recolour it, direction marks can make a line read as another one, and a name
may have megabytes.
"""

LIMIT = 200  # characters; longer names say no more to a reader and break every layout

_ASCII = str.maketrans(
    {
        "→": "->",
        "·": "-",
        "×": "x",
        "…": "~",  # one column, so that tables stay aligned
        "█": "#",
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


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else "\ufffd"
