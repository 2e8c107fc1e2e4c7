"""Commands and code of a finding in the words of the user's program: its command line, its cores.

Rules write ``python train.py`` for a program that they do not know, and eight loader workers.
Here the run folder's command takes its place; where that is not known, the word ``COMMAND`` does,
which nobody runs by mistake. A cell of a notebook has no command line: what the magic cannot do is
done with the cell as a script.
"""

import shlex

import msgspec

from pinchpoint.diagnosis.evidence.loading import workers_that_fit
from pinchpoint.diagnosis.finding import Found
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.run_folder.layout import NOTEBOOK
from pinchpoint.trace import Trace

UNKNOWN = "COMMAND"
CELL_AS_SCRIPT = "cell.py"
CHANGED = f"{UNKNOWN}, CHANGED"
_EXAMPLE = regex(r"(?:python|torchrun) (?:train|generate)\.py")
_CHANGED = regex(r"(?:python|torchrun) (?:train|generate)_\w+\.py")
_EDITED = regex(r'pinchpoint bench ab -- "COMMAND" "COMMAND, CHANGED"$')
_THIS = regex(r"(?<=pinchpoint memory )BEFORE\b|(?<=pinchpoint ncu )RECORDING\b")
_WORKERS = regex(r"num_workers=8\b")


@dataclass(frozen=True)
class Program:
    """What is known of the program that was recorded."""

    command: tuple[str, ...] = ()
    recording: str = ""  # its run folder, or the file
    workers: int | None = None  # loader workers that its cores have room for


def program_of(trace: Trace) -> Program:
    """The program of a run folder; of a trace alone only the file is known."""
    run = trace.run
    if run is None:
        return Program(recording=_text(trace.source.path))
    words = run.command
    if words and words[0].endswith(".py"):
        words = ("python", *words)
    return Program(words, _text(trace.source.path), workers_that_fit(run))


def _text(path: str) -> str:
    return str(path).encode("utf-8", "replace").decode("utf-8")


def in_its_words(found: Found, program: Program) -> Found:
    """The finding with commands and settings of this program."""
    hint = None if found.hint is None else _spelt(found.hint, program, shell=False)
    confirm = _spelt(found.confirm, program, shell=True)
    return msgspec.structs.replace(found, hint=hint, confirm=confirm)


def spelt(text: str, program: Program) -> str:
    """A sentence or a command with the program's own command line in it."""
    return _spelt(text, program, shell=True)


def _spelt(text: str, program: Program, *, shell: bool) -> str:
    said = _EXAMPLE.sub(UNKNOWN, _CHANGED.sub(CHANGED, text))
    said = _with_workers(said, program, shell=shell)
    if program.recording:
        said = _THIS.sub(lambda _: shlex.quote(program.recording), said)
    if not program.command:
        return said
    of_cell = program.command == NOTEBOOK
    words = CELL_AS_SCRIPT if of_cell else shlex.join(program.command)
    if of_cell and _EDITED.fullmatch(said):
        return _record_cell_again(program.recording)
    if _EDITED.fullmatch(said):
        return _record_again(words, program.recording)
    return said.replace(UNKNOWN, words if '"' not in words else shlex.quote(words)[1:-1])


def _with_workers(text: str, program: Program, *, shell: bool) -> str:
    if program.workers is not None:
        return _WORKERS.sub(f"num_workers={program.workers}", text)
    return _WORKERS.sub("num_workers=$(nproc)" if shell else "num_workers=os.cpu_count()", text)


def _record_cell_again(recording: str) -> str:
    after = f"{recording.rstrip('/')}-after"
    magic = f"%%pinchpoint {shlex.quote(after)} on top of the changed cell"
    return f"{magic}, and !pinchpoint compare {shlex.quote(recording)} {shlex.quote(after)}"


def _record_again(words: str, recording: str) -> str:
    """After an edit: record the same command again, and ask whether the step got what was said."""
    after = f"{recording.rstrip('/')}-after"
    paths = f"{shlex.quote(recording)} {shlex.quote(after)}"
    return f"pinchpoint run -o {shlex.quote(after)} {words} && pinchpoint compare {paths}"
