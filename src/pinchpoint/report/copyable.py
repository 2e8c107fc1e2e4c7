"""What stays on one line: commands, however long, so that they can be copied, and 3 ms."""

import re

# Stands for a space at which a line may not end; no text has it, see clean.py.
GLUE = "\ue000"
_PROGRAMS = ("pinchpoint", "python", "torchrun", "pip", "env", "taskset", "ncu", "nsys", "py-spy")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµun]?s|[KMGT]?i?B(?:/s)?)(?!\w))")
_COMMAND = re.compile(rf"(?:^|(?<=: ))(?:{'|'.join(_PROGRAMS)}) .*$")


def unbroken(text: str) -> str:
    """The text with ``GLUE`` for the spaces of the command that it is or ends with."""
    return _COMMAND.sub(lambda match: whole(match[0]), text)


def whole(code: str) -> str:
    """A line of code with ``GLUE`` for all its spaces."""
    return code.replace(" ", GLUE)


def spaced(text: str) -> str:
    """The same with spaces again."""
    return text.replace(GLUE, " ")


def units_kept(text: str) -> str:
    """The text with ``GLUE`` between numbers and their units."""
    return _BEFORE_UNIT.sub(GLUE, text)
