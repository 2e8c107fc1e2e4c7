"""From words to a command, and from what it raises to one line and an exit code.

A command is a module of ``recordings``, ``sharing`` or ``programs``. It has ``command``, a
function whose signature declares the options and whose docstring is the help, and which returns
the exit code; a command with subcommands also has ``SUBCOMMANDS``, from their names to such
functions. A command that starts a program has ``separate``, which puts ``--`` between its own
options and the program's words. Only the module of the command that was asked for is imported, so
``--help`` stays fast (docs/decisions/0008).
"""

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pinchpoint.cli.help import commands, is_command, module_name, overview, start
from pinchpoint.errors import PinchpointError, UsageError, out_of_memory

if TYPE_CHECKING:
    from cyclopts import App, CycloptsError

EXIT_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE: the reader went away, for example ``| head``
# Modules, tables and reports live until a command ends. Looking for garbage among them after every
# 700 new objects, as Python does by itself, takes a tenth of the time of ``diagnose``. Importing
# its modules makes 100,000 objects.
OBJECTS_BETWEEN_COLLECTIONS = 400_000
# These go on until they are ended, and answers leave garbage: they collect as Python does.
_GOING_ON = ("serve", "mcp", "monitor")
# None of these may lose one; mcp ends with its input. A benchmark waits for a program's end.
_UNTIL_CTRL_C = ("serve", "monitor", "bench")
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_TIME_NUMPY = ("bench", "crossover")  # how fast it is on all cores is what they are asked


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code and never raises."""
    said = list(sys.argv[1:] if words is None else words)
    if not said or said[0] not in _GOING_ON:
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
    _stand_in_for_closed_streams()
    if (output := sys.modules.get("pinchpoint.cli.output")) is not None:
        output.begin()  # another command of this process may have written
    try:
        code = _until_ctrl_c(said) if said and said[0] in _UNTIL_CTRL_C else _run(said)
        sys.stdout.flush()
        return code
    except PinchpointError as error:
        return _report_error(error)
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except BrokenPipeError:
        _forget_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        _forget_stdout()
        where = error.filename or "the output"
        return _report_error(
            UsageError(f"{where}: {error.strerror}", hint="free space, or look there")
        )
    except Exception as error:
        return _unforeseen(error)


def _stand_in_for_closed_streams() -> None:
    """What was closed by the shell (``>&-``) takes output and keeps none, or has no input."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _hear_of_children() -> None:
    import signal

    ignored = hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    if ignored:
        from pinchpoint.inside.ending import hear_of_children

        with suppress(ValueError):  # a thread of a program that calls us may not
            hear_of_children()


def _until_ctrl_c(words: list[str]) -> int:
    from pinchpoint.interruption import noted

    with noted():
        return _run(words)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        sys.stdout.write(overview() if words else start())
        return 0
    if words[0] == "--version":
        from pinchpoint import __version__

        print(f"pinchpoint {__version__}")
        return 0
    name, rest = words[0], words[1:]
    if not is_command(name):
        raise UsageError(f"there is no command {name!r}", hint=_nearest(name))
    return _call(name, rest)


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, commands(), n=1)
    if close:
        return f"did you mean: pinchpoint {close[0]}"
    if os.path.exists(name):  # noqa: PTH110 - a Path costs an import that --help should not pay
        return f"did you mean: pinchpoint diagnose {name}"
    return "pinchpoint --help lists the commands"


def _call(name: str, words: list[str]) -> int:
    from pinchpoint.cli.parameter import without_parser

    _hear_of_children()
    own, module = words, _module(name)
    if hasattr(module, "separate"):
        words = module.separate(words)
        own = words[: words.index("--") + 2] if "--" in words else words
    if "" in own:  # a Path would make the current folder of it
        raise UsageError("an empty argument", hint="is a variable of the shell not set?")
    if any("\0" in word for word in words):  # no shell can say that, a program that calls this can
        raise UsageError("a zero byte in an argument", hint="no file is called so")
    plain = without_parser(module.command, words) if hasattr(module, "command") else None
    if plain is not None:
        return int(module.command(*plain.files, **plain.options))
    return _parsed(name, words)


def _parsed(name: str, words: list[str]) -> int:
    from cyclopts import CycloptsError

    try:
        code = app_of(name)(
            words, exit_on_error=False, print_error=False, result_action="return_value"
        )
    except CycloptsError as error:
        text = _missing(error) or " ".join(str(error).split())
        raise UsageError(text, hint=f"pinchpoint {name} --help") from None
    return int(code or 0)


def _missing(error: "CycloptsError") -> str | None:
    """That something was left out, where the parser says of it that it requires an argument."""
    from cyclopts import MissingArgumentError

    one = error.argument
    if not isinstance(error, MissingArgumentError) or one is None or error.keyword or one.tokens:
        return None
    return f"{one.name} is missing" if str(error).rstrip().endswith("an argument.") else None


def _module(name: str) -> ModuleType:
    """The module of a command.

    Most import NumPy, whose BLAS starts a thread a core, and these then spin for a tenth of a
    second beside the reading of files. No analysis multiplies matrices, so they get one thread.
    Programs that a command starts find the environment as the user left it.
    """
    module = module_name(name)
    if name in _TIME_NUMPY or _BLAS_THREADS in os.environ:
        return import_module(module)
    os.environ[_BLAS_THREADS] = "1"
    try:
        return import_module(module)
    finally:
        del os.environ[_BLAS_THREADS]


def app_of(name: str) -> "App":
    """The options and subcommands of a command."""
    from cyclopts import App

    from pinchpoint.cli.help import HelpText, epilogue
    from pinchpoint.cli.parameter import for_parser

    module = _module(name)
    app = App(
        name=f"pinchpoint {name}",
        version_flags=(),
        help_formatter=HelpText(),
        help_format="plaintext",
        help_epilogue=epilogue(name),
        suppress_keyboard_interrupt=False,
    )
    app["--help"].show = False  # who reads this has found it
    if hasattr(module, "command"):
        for_parser(module.command)
        app.default(module.command)
    for subcommand, function in getattr(module, "SUBCOMMANDS", {}).items():
        for_parser(function)
        own = epilogue(f"{name} {subcommand}")
        app.command(function, name=subcommand, help_epilogue=own)
    return app


def _interrupted(error: KeyboardInterrupt) -> int:
    """Say what is left behind; whatever writes over time has noted it on the interruption."""
    try:
        from pinchpoint.cli.output import note, written
    except ImportError:  # in the middle of an import, which does not go on
        _say("interrupted; nothing was written")
        return EXIT_INTERRUPTED
    left = [f"written before: {', '.join(map(str, written()))}"] if written() else []
    left += getattr(error, "__notes__", [])
    note(f"interrupted; {'; '.join(left) or 'nothing was written'}")
    return EXIT_INTERRUPTED


def _report_error(error: PinchpointError) -> int:
    from pinchpoint.report.plain import REMARK_LIMIT, plain

    _show_traceback(error.__cause__)
    _say(f"error: {plain(error.message, REMARK_LIMIT)}")
    if error.hint:
        _say(f" next: {plain(error.hint, REMARK_LIMIT)}")
    return error.exit_code


def _unforeseen(error: Exception) -> int:
    if (lack := out_of_memory(error)) is not None:
        return _report_error(lack)
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop from "):
        # What Python before 3.13 raises where any path is resolved.
        where = str(error).removeprefix("Symlink loop from ")
        return _report_error(UsageError(f"{where}: a link to itself", hint="check the path"))
    return _own_up(error)


def _own_up(error: Exception) -> int:
    from pinchpoint.report.plain import plain

    _show_traceback(error)
    what = plain(f"{type(error).__name__}: {error}")
    _say(f"internal error: {what}; this is a bug in Pinchpoint, please report")
    _say(" next: run again with PINCHPOINT_DEBUG=1 for the details of a report")
    return EXIT_INTERNAL_ERROR


def _show_traceback(error: BaseException | None) -> None:
    if error is not None and os.environ.get("PINCHPOINT_DEBUG"):
        import traceback

        _say("".join(traceback.format_exception(error)).rstrip())


def _say(line: str) -> None:
    """A line on standard error, if anybody is there: the exit code says the rest."""
    with suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def _forget_stdout() -> None:
    # Python flushes standard output once more at exit, and would complain a second time.
    with suppress(OSError, ValueError):  # a stream of a program that calls us has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
