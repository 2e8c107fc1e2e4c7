"""What ``--help`` prints: the commands, examples, and how the help of one command looks.

The overview is written without the option parser: importing that and drawing its help takes longer
than everything else that ``pinchpoint --help`` does (docs/decisions/0008).
"""

import io
import pkgutil
import textwrap
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

_ROOMS = ("recordings", "sharing", "programs")
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
  thousands of runs           pinchpoint fleet runs/
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
    names = sorted(_places())
    names.sort(key=lambda n: _FIRST.index(n) if n in _FIRST else len(_FIRST))
    return {name: _summary(_places()[name]) for name in names}


def is_command(name: str) -> bool:
    """Whether there is such a command; reads none of them."""
    return name in _places()


def module_name(command: str) -> str:
    """The dotted name of a command's module."""
    place = _places()[command]
    return f"{__package__}.{place.parent.name}.{place.stem}"


@cache
def _places() -> dict[str, Path]:
    """The module or package of each command; the others in its room begin with ``_``."""
    home = Path(__file__).parent
    return {
        module.name.replace("_", "-"): home / room / module.name
        for room in _ROOMS
        for module in pkgutil.iter_modules([str(home / room)])
        if not module.name.startswith("_")
    }


def start() -> str:
    """What ``pinchpoint`` alone prints: where to begin with what one has."""
    return _START


def overview() -> str:
    """What ``pinchpoint --help`` prints."""
    width = max(len(name) for name in commands())
    lines = [f"  {name:{width}}  {summary}\n" for name, summary in commands().items()]
    return _HEAD + "".join(lines) + _TAIL


def _summary(place: Path) -> str:
    """First line of a module's docstring, read without running the module."""
    module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = module.read_text("utf-8").partition('"""')[2]
    return text.partition('"""')[0].partition("\n")[0].strip().rstrip(".")


# ------------------------------------------------------------------------------------------------
# Examples for the help of each command; a test parses every one of them.


EXAMPLES: dict[str, tuple[str, ...]] = {
    "attach": ("pinchpoint attach 4711",),
    "bench": (
        'pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
        "pinchpoint bench run -- python train.py",
    ),
    "bench ab": (
        'pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
        "pinchpoint bench ab --knob num_workers=0,4 -- python train.py",
    ),
    "bench bisect": ("pinchpoint bench bisect --good v1.2 --threshold 5% -- python train.py",),
    "bench calibrate": ("pinchpoint bench calibrate -- python train.py",),
    "bench check": (
        "pinchpoint bench check --baseline base.json --update -- python train.py",
        "pinchpoint bench check --baseline base.json --fail step_time_ms:5% -- ./train",
    ),
    "bench history": ("pinchpoint bench history baseline.json",),
    "bench op": ('pinchpoint bench op "x @ x" --setup "import torch; x = torch.rand(512, 512)"',),
    "bench run": ("pinchpoint bench run --processes 5 -- python train.py",),
    "bench serve": ("pinchpoint bench serve http://localhost:8000/v1/completions --model NAME",),
    "causal": ("pinchpoint causal trace.json.gz", "pinchpoint causal trace.json.gz --by line"),
    "ceilings": ("pinchpoint ceilings", "pinchpoint ceilings --device cpu"),
    "compare": ("pinchpoint compare before.json.gz after.json.gz",),
    "completion": ("pinchpoint completion bash",),
    "crossover": ("pinchpoint crossover matmul add --html crossover.html",),
    "demo": ("pinchpoint demo",),
    "diagnose": (
        "pinchpoint diagnose trace.json.gz",
        "pinchpoint diagnose trace.json.gz --html report.html",
        "pinchpoint diagnose trace.json.gz --fail-over 5%",
        "pinchpoint diagnose trace.json.gz --json --max-chars 8000",
    ),
    "doctor": ("pinchpoint doctor",),
    "explain": ("pinchpoint explain", "pinchpoint explain sync-in-loop"),
    "export": (
        "pinchpoint export trace.json.gz --to speedscope -o stacks.speedscope.json",
        "pinchpoint export trace.json.gz --to chrome --steps 3-5 -o steps.json",
        "pinchpoint export trace.json.gz --to parquet -o tables/",
    ),
    "fleet": (
        "pinchpoint fleet runs/",
        "pinchpoint fleet s3://bucket/runs --by script",
        'pinchpoint fleet runs/ --sql "SELECT host, median(step_ms) FROM runs GROUP BY ALL"',
    ),
    "formats": ("pinchpoint formats",),
    "kernels": ("pinchpoint kernels report.ncu-rep",),
    "mcp": ("pinchpoint mcp profiles/",),
    "memory": (
        "pinchpoint memory snapshot.pickle",
        "pinchpoint memory snapshot.pickle --html memory.html",
    ),
    "merge": ("pinchpoint merge part1.json part2.json",),
    "monitor": ("pinchpoint monitor", "pinchpoint monitor --log samples.csv"),
    "ncu": ("pinchpoint ncu trace.json.gz python train.py",),
    "note": ('pinchpoint note runs/a "learning rate doubled"',),
    "open": (
        "pinchpoint open trace.json.gz",
        "pinchpoint open trace.json.gz --steps 3-5 --no-browser",
    ),
    "ranks": ("pinchpoint ranks traces/",),
    "report": ("pinchpoint report trace.json.gz -o report.html",),
    "roofline": ("pinchpoint roofline trace.json.gz",),
    "run": ("pinchpoint run train.py --epochs 1", "pinchpoint run -o runs/a train.py"),
    "serve": ("pinchpoint serve runs/", "pinchpoint serve runs/ --port 0"),
    "show": (
        "pinchpoint show trace.json.gz sync-in-loop",
        "pinchpoint show trace.json.gz 1 --json",
    ),
    "skill": ("pinchpoint skill",),
    "sql": (
        'pinchpoint sql trace.json.gz "SELECT name, sum(duration_ns) FROM device_ops GROUP BY ALL"',
    ),
    "try": ("pinchpoint try --knob num_workers=4,8 --knob pin_memory -- python train.py",),
}


def epilogue(name: str) -> str | None:
    """The examples of a command as the end of its help."""
    lines = EXAMPLES.get(name)
    return None if lines is None else "examples:\n" + "\n".join(f"  {line}" for line in lines)


# ------------------------------------------------------------------------------------------------
# How the help of a command looks: plain text in two columns, as wide as the terminal.


LABEL_WIDTH = 22  # a longer label gets a line of its own
NARROW = 60  # below, labels get lines of their own
_LEAST_WIDTH = 30  # narrower terminals wrap by themselves
_UNWRAPPED = 100_000
_TITLES = {"Parameters": "options"}


class HelpText:
    """A formatter of cyclopts."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        """One block: arguments, options or subcommands."""
        if panel.entries:
            title = _plain(panel.title)
            self._write(console, f"{_TITLES.get(title, title.lower())}:")
            for entry in panel.entries:
                self._write(console, _entry(entry, max(console.width, _LEAST_WIDTH)))
            self._write(console, "")

    def render_usage(self, console: "Console", options: "ConsoleOptions", usage: Any) -> None:
        """The first line."""
        text = _plain(usage).removeprefix("Usage:").strip()
        self._write(console, f"usage: {text}\n")

    def render_description(
        self, console: "Console", options: "ConsoleOptions", description: Any
    ) -> None:
        """What the command does: paragraphs of the docstring."""
        paragraphs = [" ".join(p.split()) for p in _plain(description).split("\n\n")]
        for paragraph in filter(None, paragraphs):
            width = max(console.width, _LEAST_WIDTH)
            self._write(console, textwrap.fill(paragraph, width, break_on_hyphens=False) + "\n")

    def _write(self, console: "Console", text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _entry(entry: "HelpEntry", width: int) -> str:
    label = "  " + ", ".join(entry.display_labels_with_metavar)
    said = [_plain(entry.description)]
    if entry.default not in (None, "False", "[]"):
        said.append(f"[default: {entry.default}]")
    said += ["[required]"] if entry.required else []
    indent = " " * (6 if width < NARROW else LABEL_WIDTH + 2)
    lines = textwrap.wrap(" ".join(" ".join(said).split()), width - len(indent) - 1) or [""]
    if len(label) > LABEL_WIDTH or width < NARROW:
        return "\n".join([label, *(f"{indent}{line}" for line in lines)]).rstrip()
    first, *rest = lines
    return "\n".join([f"{label:{LABEL_WIDTH}}  {first}", *(f"{indent}{r}" for r in rest)]).rstrip()


def _plain(text: Any) -> str:
    """The words of anything that rich can show, unwrapped."""
    if text is None or isinstance(text, str):
        return (text or "").strip().replace("``", "")
    from rich.console import Console

    console = Console(file=io.StringIO(), width=_UNWRAPPED, color_system=None)
    with console.capture() as words:
        console.print(text, highlight=False, markup=False)
    lines = (line.rstrip() for line in words.get().splitlines())
    return "\n".join(lines).strip().replace("``", "")
