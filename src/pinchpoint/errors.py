"""Every error that Pinchpoint raises on purpose.

PinchpointError                 has a message and a hint that says what to do next; exit code 2
├── UsageError                  the command or call cannot mean anything
├── UnreadableFile              missing, forbidden, empty, of an unknown format, or too broken
│   ├── NotThisFormat           it looked like a format, and another reader may know it
│   ├── HostileFile             the file asks for something that a recording never needs
│   └── OutOfMemory             what is read, or its analysis, does not fit into memory
├── MissingExtra                an optional dependency is not installed
├── NotComparable               two things were measured under conditions that differ; exit code 3
└── MeasurementInvalid          the measurement itself went wrong; exit code 5

The command line prints ``message`` and ``hint`` without a traceback and exits with ``exit_code``.
"""


class PinchpointError(Exception):
    """A foreseen problem: what is wrong (``message``) and the next step (``hint``)."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PinchpointError):
    """The command or call cannot mean anything."""


class UnreadableFile(PinchpointError):
    """A file that cannot be read, or is not what it should be."""


class NotThisFormat(UnreadableFile):
    """A file that looked like a format and holds nothing of it: another reader may know it."""


class HostileFile(UnreadableFile):
    """A file that asks for code to run, or for more memory than any recording needs."""


class OutOfMemory(UnreadableFile):
    """What is read, or its analysis, does not fit into the memory that this process may use."""

    def __init__(
        self,
        what: object = "",
        *,
        hint: str = "pinchpoint diagnose --from 0s --to 5s looks at a part; or record fewer steps",
    ) -> None:
        said = f"{what}: " if what else ""
        super().__init__(f"{said}not enough memory", hint=hint)


class MissingExtra(PinchpointError):
    """An optional dependency is not installed; the hint names the extra."""


class NotComparable(PinchpointError):
    """Two results come from conditions that differ in what matters."""

    exit_code = 3


class MeasurementInvalid(PinchpointError):
    """The measurement itself went wrong (throttled, disturbed, no samples)."""

    exit_code = 5


class OutOfThreads(OutOfMemory):
    """No thread or process can be started: memory is one reason, limits of containers another."""

    def __init__(self, what: object = "") -> None:
        super().__init__(what, hint="raise that limit, or end other programs")
        self.message = self.message.removesuffix("not enough memory") + (
            "no thread can be started: a limit on processes (ulimit -u, a container's), or memory"
        )


# How Python, the dynamic linker and zlib say that memory ran out, where it is no MemoryError.
_OF_MEMORY = ("failed to map segment", "allocate memory", "out of memory")
# How Python and DuckDB do of threads; the system does not tell them why.
_OF_THREADS = ("can't start new thread", "thread constructor failed")


def out_of_memory(error: BaseException | None, what: object = "") -> OutOfMemory | None:
    """What to raise where memory or threads ran out, as the error or what led to it says."""
    while error is not None:
        text = str(error).lower()
        if any(words in text for words in _OF_THREADS):
            return OutOfThreads(what)
        if isinstance(error, MemoryError) or any(words in text for words in _OF_MEMORY):
            return OutOfMemory(what)
        error = error.__cause__ or error.__context__
    return None


def install_hint(extra: str, *packages: str) -> str:
    """How to get what an extra brings: the packages themselves, or the extra in a checkout."""
    return f"pip install {' '.join(packages)}, or in a checkout: pip install -e '.[{extra}]'"
