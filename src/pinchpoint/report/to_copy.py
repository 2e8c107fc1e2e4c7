"""Commands in what is printed: they stay on one line, however long, so that they can be copied."""

import re

# Stands for a space at which a line may not end; no text has it, see clean.py.
GLUE = "\ue000"
_PROGRAMS = ("pinchpoint", "python", "torchrun", "pip", "env", "taskset", "ncu", "nsys", "py-spy")
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
