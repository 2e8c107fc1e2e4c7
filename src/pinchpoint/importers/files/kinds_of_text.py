"""What a text is that tells nothing of a run: by the shape of most of its lines."""

import re

from pinchpoint.importers.files.strangers import Answer
from pinchpoint.regex import regex

_RUN = "record the program that it is about: pinchpoint run COMMAND"
_RUN_IT = "run it, and record that: pinchpoint run python FILE"
_LOOKED_AT = 400  # lines
_LEAST_LINES = 3  # a shape is one of several lines
_M = re.MULTILINE
# What one line of a text tells of all of it. Blanks before it are of its own line: over those of
# many empty lines a search would begin again at each.
_SIGNS: tuple[tuple[re.Pattern[bytes], str, str], ...] = (
    (regex(rb"\Adiff --git |^@@ -\d+,\d+ \+\d+,\d+ @@", _M),
     "a difference between two texts", _RUN),
    (regex(rb"^CUDA used to build PyTorch: |^PyTorch version: .*\r?\n(?:Is debug|CUDA used)", _M),
     "what PyTorch says of its environment (collect_env)", _RUN),
    (regex(rb"^={3,} test session starts ={3,}|^Ran \d+ tests? in ", _M),
     "what tests printed",
     "record a program: pinchpoint run COMMAND; of slow tests: pytest --durations=20"),
    (regex(rb"^Requirement already satisfied: |^Collecting [\w.-]+\r?\n|^Successfully installed ",
           _M),
     "what pip printed while it installed", _RUN),
    (regex(rb"^\[ *\d+%\] (?:Building|Linking|Built) |^make(?:\[\d+\])?: "
           rb"|^ninja: |^-- Configuring done"
           rb"|^[^\S\n]+Compiling \w[\w-]* v\d|^\[\d+/\d+\] (?:Building|c\+\+|/usr|nvcc|ccache)"
           rb"|ptxas info\s+:|^\S+[:(]\d+(?:[:,]\d+)?\)?: (?:warning|error|note|fatal error)\b",
           _M),
     "what a compiler or a build printed", _RUN),
    (regex(rb"\AHloModule |\Amodule @|^[^\S\n]*(?:func\.func|tt\.func|gpu\.func) |"
           rb"^define \S+ @\w+\(|^\.visible \.entry", _M),
     "a program as a compiler holds it, which has no times",
     "record a run of it: pinchpoint run COMMAND"),
    (regex(rb"\A\s*(?:strict )?(?:di)?graph \w*\s*\{"), "a graph to draw (DOT)", _RUN),
    (regex(rb"\A#!.*\b(?:sh|bash|zsh)\b|\A#SBATCH |^#SBATCH --", _M),
     "a shell script", "run it, and record its program: put pinchpoint run before python in it"),
    (regex(rb"\A(?:Architecture: |processor\s+: 0|H/W path)|^CPU op-mode\(s\): ", _M),
     "what a machine has (lscpu, lshw)", _RUN),
    (regex(rb"^usage: |\AUsage: ", re.IGNORECASE | _M), "the help text of a program", _RUN),
    (regex(rb"^ *Layer \(type|^Total params: |^Trainable params: ", _M),
     "the summary of a model: shapes and parameters, no times", _RUN),
    (regex(rb"^:::MLLOG |^:::MLL ", _M),
     "a log of MLPerf, which tells what was reached and nothing of what ran",
     "record the benchmark itself: pinchpoint run COMMAND"),
    (regex(rb"^# (?:HELP|TYPE) [a-z_]\w*[: ]", _M),
     "counters of a server at one moment, none of them a number that tells a pace",
     "measure it: pinchpoint bench serve; or give its log while it answers"),
    (regex(rb"^commit [0-9a-f]{40}$", _M), "a history of git", _RUN),
)  # fmt: skip
# What most lines look like.
_NUMBERS = regex(
    rb"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?(?:[\s,;]+[-+]?[\d.]+(?:[eE][-+]?\d+)?)*[\s,;]*$"
)
_SHAPES: tuple[tuple[re.Pattern[bytes], float, str, str], ...] = (
    (regex(rb"\s*[\w.\[\]-]+\s*(?:==|~=|>=|<=|@ )\s*\S+|\s*-e |# .{0,60}$"), 0.8,
     "a list of packages (requirements, pip freeze)", _RUN),
    (regex(rb"[\w.-]+ {2,}\d[\w.+-]*( {2,}\S+)*\s*$"), 0.8,
     "a list of packages (pip or conda list)", _RUN),
    (regex(rb"\s*(?:\S+\.so\S* (?:=> )?(?:\S+ )?\(0x|ldd )"), 0.6,
     "what a program links to (ldd)", _RUN),
    (regex(rb"(?:export )?[A-Z_][A-Z0-9_]*=.*$"), 0.7, "variables of an environment", _RUN),
    (regex(rb"\s*(?:def |class |import |from \S+ import|return\b|if .*:$|for .*:$|else:$"
           rb"|try:$|with .*:$|elif .*:$|except\b.*:$|@\w|\"\"\"|raise |self\.|print\(|#"
           rb"|\w+ = .+|\w[\w.]*\(.*\)?$|[)\]}]+,?$)"),
     0.6, "source code (Python)", _RUN_IT),
    (regex(rb"\s*(?!\s)(?:#(?:include|define|if|endif|pragma)|//|/?\*|.*[;{}]\s*(?://.*)?$"
           rb"|template ?<|__global__)"),
     0.6, "source code", "compile it, and record a run: pinchpoint run ./PROGRAM"),
    (regex(rb"\s*[\[{]?\"[\w ./-]+\": |\s*[\]}],?\s*$"), 0.7,
     "a piece of JSON, whose beginning is missing", "give the whole file"),
    (regex(rb"\s*(?:- )*[\w.-]+:(?: \S.*)?$|\s*- \S|\s*#"), 0.8, "a configuration (YAML)",
     "run the program with it: pinchpoint run COMMAND"),
    (regex(rb"\s*\[[\w. :-]+\]\s*$|\s*[\w.-]+ ?= ?\S.*$|\s*[#;]"), 0.8, "a configuration",
     "run the program with it: pinchpoint run COMMAND"),
    (_NUMBERS, 0.9,
     "numbers without names, so what is what is unknown",
     "put a line above them that names each column, with its unit and between commas"
     " (step_time_ms,loss); columns between commas, too"),
    (regex(rb"\s*(?:File \"|Traceback|\^|at [\w.$]+\(|#\d+ +0x)"), 0.3, "a stack trace", _RUN),
    (regex(rb".{0,40}\d\d:\d\d:\d\d|\s*\[?(?:INFO|DEBUG|WARN\w*|ERROR)\b"), 0.5,
     "a log that gives no figure of what ran", _RUN),
    (regex(rb"#{1,6} \S|[-*] \S|\s*\d+\. \S|```|.{40,}[.!?:]\s*$|.{120,}"), 0.5, "prose", _RUN),
)  # fmt: skip


_DIGITS = regex(rb"\d+")


def said_by_a_line(text: bytes) -> Answer | None:
    """What one line of a text tells of all of it; None where none does."""
    found = ((what, hint) for sign, what, hint in _SIGNS if sign.search(text))
    return next(found, None)


def kind_of_text(text: bytes) -> Answer | None:
    """What a text is, and the next step; None where its lines have no shape that is known."""
    if (told := said_by_a_line(text)) is not None:
        return told
    lines = [line for line in text.splitlines()[:_LOOKED_AT] if line.strip()]
    if len(lines) < _LEAST_LINES and not all(map(_NUMBERS.match, lines)):
        return None
    again = len(lines) - len({_DIGITS.sub(b"", line) for line in lines})
    for shape, most, what, hint in _SHAPES:
        if "configuration" in what and 2 * again > len(lines):
            continue  # each of its names stands once
        if sum(shape.match(line) is not None for line in lines) >= most * len(lines):
            return what, hint
    return None


__all__ = ["kind_of_text", "said_by_a_line"]
