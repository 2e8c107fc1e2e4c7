"""The commands, found by listing this folder, and the overview that ``--help`` prints.

Written without the option parser: importing it and drawing its help takes longer than everything
else that ``pinchpoint --help`` does.
"""

import pkgutil
from functools import cache
from pathlib import Path

_NOT_COMMANDS = {"dispatch", "examples", "help_text", "listing", "output", "gate", "progress"}
_FIRST = ("demo", "diagnose", "run", "explain")

_HEAD = """\
Why is my training (or inference) step slow, what would fixing it give me, and did the fix work?

usage: pinchpoint COMMAND ...

"""
_TAIL = """
pinchpoint COMMAND --help says more; pinchpoint --version says which version this is.
exit codes: 0 pass, 1 regression or finding over the gate, 2 usage or unreadable input,
3 not comparable, 4 inconclusive, 5 measurement invalid
"""


@cache
def commands() -> dict[str, str]:
    """One line about each command, by name, the ones to begin with first."""
    folder = Path(__file__).parent
    names = sorted(m.name for m in pkgutil.iter_modules([str(folder)]))
    chosen = [n for n in names if n not in _NOT_COMMANDS and not n.startswith("_")]
    chosen.sort(key=lambda n: _FIRST.index(n) if n in _FIRST else len(_FIRST))
    return {name.replace("_", "-"): _summary(folder / f"{name}.py") for name in chosen}


def overview() -> str:
    """What ``pinchpoint --help`` prints."""
    width = max(len(name) for name in commands())
    lines = [f"  {name:{width}}  {summary}\n" for name, summary in commands().items()]
    return _HEAD + "".join(lines) + _TAIL


def _summary(module: Path) -> str:
    """First line of a module's docstring, read without running the module."""
    text = module.read_text("utf-8").partition('"""')[2]
    return text.partition('"""')[0].partition("\n")[0].strip().rstrip(".")
