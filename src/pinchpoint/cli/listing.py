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
_START = """\
Why is my training (or inference) step slow, what would fixing it give me, and did the fix work?

What have you got?

  a script that is slow       pinchpoint run train.py
  a trace or a profile        pinchpoint diagnose trace.json.gz
  an out-of-memory error      pinchpoint memory snapshot.pickle
                              (pinchpoint run --snapshot train.py makes one)
  recordings of many ranks    pinchpoint ranks traces/
  a fix to check              pinchpoint compare before.json.gz after.json.gz
  two commands to compare     pinchpoint bench ab -- "COMMAND" "COMMAND, CHANGED"
  a program to benchmark      pinchpoint bench run -- python train.py
  many runs to keep track of  pinchpoint serve runs/
  nothing yet                 pinchpoint demo

pinchpoint --help lists all commands; pinchpoint COMMAND --help says more about one.
Completion in your shell: eval "$(pinchpoint completion bash)"
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


def start() -> str:
    """What ``pinchpoint`` alone prints: where to begin with what one has."""
    return _START


def overview() -> str:
    """What ``pinchpoint --help`` prints."""
    width = max(len(name) for name in commands())
    lines = [f"  {name:{width}}  {summary}\n" for name, summary in commands().items()]
    return _HEAD + "".join(lines) + _TAIL


def _summary(module: Path) -> str:
    """First line of a module's docstring, read without running the module."""
    text = module.read_text("utf-8").partition('"""')[2]
    return text.partition('"""')[0].partition("\n")[0].strip().rstrip(".")
