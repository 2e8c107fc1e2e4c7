"""What a log says went wrong: the exception and its place, memory that lacked, a rank that hung."""

from collections import Counter
from textwrap import wrap

from pinchpoint.importers.program_logs._stamps import Stamps
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

_SHORT = 300  # characters of an error that are said; what follows lists advice
_EXCEPTION = regex(
    r"^\s*(?P<type>(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Failure"
    r"|OOM|Killed|Abort)(?!\w))(?::\s*(?P<text>.{0,240}))?\s*$"
)
_INLINE = regex(
    r"(?:^|[\s\]:|])(?P<type>(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt))"
    r"(?:: (?P<text>.{1,240}))?\s*$"
)
_FRAME = regex(r'^\s*File "(?P<file>[^"]{1,300})", line (?P<line>\d{1,7}), in (?P<in>\S{1,100})')
_RANK = regex(r"\[?\b(?:rank|Rank|RANK)[ :_=]?(?P<rank>\d{1,6})\b")
# What ends programs that are not Python's, or that Python cannot catch.
_FATAL = regex(
    r"(?P<what>Segmentation fault.{0,40}|Bus error.{0,40}|Illegal instruction.{0,40}"
    r"|CUDA out of memory.{0,160}|out of memory: Kill.{0,120}|Out of memory: Kill.{0,120}"
    r"|RESOURCE_EXHAUSTED.{0,160}|(?:CUDA|HIP|ROCm|NPU|XPU) error\b.{0,160}|\boom-kill\b.{0,80}"
    r"|oom_kill event.{0,80}|NVRM: Xid.{0,120}|Fatal Python error: .{0,120}"
    r"|terminate called after throwing .{0,160}|^panic: .{0,160}"
    r"|thread '[^']{1,60}' panicked.{0,160}|Watchdog caught collective operation timeout.{0,300}"
    r"|CANCELLED AT .{0,80}"
    r"|NCCL WARN .{0,30}(?:error|failed|Error|Failed|timeout).{0,160}|^Killed\s*$|^Aborted.{0,30}$"
    r"|ERROR: LoadError: .{0,160}|Exited with exit code [1-9]\d*"
    r"|exitcode\s*: -?[1-9]\d* .{0,80}|failed \(exitcode: .{0,100})"
)
_FATAL_WORDS = (
    "ault", "error", "rror", "emory", "kill", "Kill", "EXHAUSTED", "Xid", "terminate", "panic",
    "imeout", "CANCELLED", "Abort", "exit", "instruction",
)  # fmt: skip
_TIMEOUT = regex(
    r"OpType=(?P<op>\w+).{0,120}?Timeout\(ms\)=(?P<limit>\d+)\).{0,60}?ran for (?P<ran>\d+)"
)
_OOM = regex(r"Tried to allocate (?P<asked>[\d.]+ \w+)")
_TOTAL = regex(r"total capacity of (?P<all>[\d.]+ \w+)")
_FREE = regex(r"of which (?P<free>[\d.]+ \w+) is free|\b(?P<old>[\d.]+ \w+) free;")
# Between the parts of a chain of exceptions: what follows comes of what stands above.
_CHAIN = ("During handling of the above exception", "The above exception was the direct cause")
_IGNORED = "Exception ignored in"  # of a destructor, on the way out
_ABOVE = regex(  # the error itself says that the cause is another one, which was said before
    r"\b(?:root cause|error|exception|stack ?trace|traceback|logs?|messages?|output|details)"
    r"(?: \w+)? above\b|\bsee above\b|\babove (?:for|error|exception|traceback|stack ?trace)\b",
    2,
)
# They say that another process failed, or that somebody stopped it: not why.
_FOLLOWS = ("ChildFailedError", "SystemExit", "KeyboardInterrupt", "CalledProcessError")


# What a line of a level of its own says went wrong, and what others say so: for a log that has no
# more to tell.
_LEVEL = regex(r"\b(?:ERROR|CRITICAL|FATAL)\b\W{1,4}(?P<what>\S.{2,240})")
_FAILED = regex(r"\b[Ff]ailed to \w")
_LEVELS = ("ERROR", "CRITICAL", "FATAL")
_OF_ERRORS = (
    *_LEVELS, "ailed to", "bove exception", _IGNORED,
    "Traceback", 'File "', "xit",
)  # fmt: skip


class Failures:
    """The first and the last exception, and what killed the program."""

    def __init__(self) -> None:
        self._stamps = Stamps()
        self._frame, self._when, self._in_traceback = "", "", False
        self._tracebacks = 0
        self._levelled = self._failed = ""
        self._errors: list[tuple[str, str, str, str]] = []  # what, place, rank, when
        self._chained, self._ignored = False, False
        self._roots: list[int] = []  # of each of the errors, the one that its chain begins with
        self._types: Counter[str] = Counter()
        self._fatal: dict[str, tuple[str, str]] = {}
        self._more: dict[str, str] = {}

    def line(self, text: str) -> str:
        """Looks at one line of the log."""
        if "bove exception" in text and any(words in text for words in _CHAIN):
            self._chained = True
        elif _IGNORED in text:
            self._ignored = True
        if "Traceback (most recent call last)" in text:
            self._tracebacks += 1
            self._in_traceback, self._frame = True, ""
            return text
        if self._in_traceback and 'File "' in text and (found := _FRAME.search(_bare(text))):
            self._frame = f"{found['file']}:{found['line']}, in {found['in']}"
            return ""
        if any(word in text for word in ("Error", "Exception", "Interrupt", "Exit", "Timeout")):
            self._exception(text)
        self._by_level(text)
        if any(word in text for word in _FATAL_WORDS) and (found := _FATAL.search(text)):
            what = found["what"].strip()
            if len(self._fatal) < 100:
                self._fatal.setdefault(what[:_SHORT], self._where(text))
            self._details(text)
        return text

    def _by_level(self, text: str) -> None:
        """What a line says that is of a level of errors, or that something failed."""
        if any(level in text for level in _LEVELS):
            if found := _LEVEL.search(text):
                self._levelled = found["what"].strip()[:_SHORT]
        elif not self._failed and _FAILED.search(text):
            self._failed = text.strip()[:_SHORT]

    def concerns(self, text: str) -> bool:
        """Whether a line, or one with other digits, may be of an error."""
        if any(words in text for words in _OF_ERRORS):
            return True
        bare = _bare(text)
        return any(
            found is not None
            for found in (_EXCEPTION.match(bare), _INLINE.search(bare), _FATAL.search(text))
        )

    def _exception(self, text: str) -> None:
        bare = _bare(text)
        found = _EXCEPTION.match(bare) or _INLINE.search(bare)
        if found is None or found["type"].endswith("Warning"):
            return
        if self._ignored:
            self._ignored, self._in_traceback = False, False
            return
        kind = found["type"].rpartition(".")[2]
        said = f"{found['type']}: {found['text']}" if found["text"] else found["type"]
        place = self._frame if self._in_traceback else ""
        self._types[kind] += 1
        if len(self._errors) < 1000:
            above = self._chained and bool(self._roots)
            self._roots.append(self._roots[-1] if above else len(self._errors))
            self._errors.append((said[:_SHORT], place, *self._where(text)))
        self._chained = False
        self._in_traceback = False
        self._details(text)

    def _where(self, text: str) -> tuple[str, str]:
        rank = _RANK.search(text[:200])
        before = text[:60]
        stamp, _ = self._stamps.of(before)
        when = "" if stamp is None else _said_stamp(before)
        return (rank["rank"] if rank else "", when)

    def _details(self, text: str) -> None:
        if found := _TIMEOUT.search(text):
            self._more["collective that did not end"] = (
                f"{found['op']}, after {int(found['ran']) / 1e3:,.4g} s"
                f" (limit {int(found['limit']) / 1e3:,.4g} s)"
            )
        if found := _OOM.search(text):
            self._more["memory that lacked"] = found["asked"]
            if total := _TOTAL.search(text):
                self._more["memory of the device"] = total["all"]
            if free := _FREE.search(text):
                self._more["free then"] = free["free"] or free["old"]

    def cause(self) -> str:
        """The error that ended the program, as far as the log says: the root of its chain."""
        if self._fatal:
            return next(iter(self._fatal))
        own = self._own()
        return self._errors[self._root(own[-1])][0] if own else self._levelled

    def failed(self) -> str:
        """The first line that says what a program failed to do; of a server's log."""
        return self._failed

    def _own(self) -> list[int]:
        """Errors but those that only say that another process failed, if there are others."""
        every = range(len(self._errors))
        own = [at for at in every if not any(f in self._errors[at][0] for f in _FOLLOWS)]
        return own or list(every)

    def _root(self, at: int) -> int:
        """Where the chain of an error begins, and the error above that it speaks of."""
        root = self._roots[at]
        if root > 0 and _ABOVE.search(self._errors[root][0]):
            return self._root(root - 1)
        return root

    def tables(self) -> tuple[SummaryTable, ...]:
        """What went wrong; none where no line says so."""
        rows: list[tuple[str, str]] = []
        places = self._own()
        own = [self._errors[at] for at in places]
        if own:
            rows += _rows("first error", *own[0])
            if own[-1][0] != own[0][0]:
                rows += _rows("last error", *own[-1])
                if (root := self._errors[self._root(places[-1])]) not in (own[0], own[-1]):
                    rows += _rows("its cause", *root)
            if len(self._errors) > 1:
                most = self._types.most_common(4)
                rows.append(("errors", ", ".join(f"{name} ({n} ×)" for name, n in most)))
        for what, (rank, when) in list(self._fatal.items())[:3]:
            if not own or (what not in own[0][0] and what not in own[-1][0]):
                rows += _rows("also said", what, "", rank, when)
        rows += self._more.items()
        lines = (line for label, said in rows for line in _wrapped(f"{label}: {said}"))
        cells = tuple((line,) for line in lines)
        return (SummaryTable(("what the log says went wrong",), cells),) if cells else ()


def _rows(label: str, said: str, place: str, rank: str, when: str) -> list[tuple[str, str]]:
    more = (("raised at", place), ("of rank", rank), ("at", when))
    return [(label, said), *((name, value) for name, value in more if value)]


def _wrapped(text: str) -> list[str]:
    """A text as rows that a page of 80 characters shows whole."""
    return wrap(text, _WIDE, subsequent_indent="  ")[:_MOST_LINES]


_WIDE, _MOST_LINES = 76, 5  # characters of a page of 80; what is said of an error fits


def _bare(text: str) -> str:
    """Without the rank or process that some launchers put before each line."""
    return _PREFIX.sub("", text, count=1)


_PREFIX = regex(r"^(?:\[?[\w.-]{0,40}(?:rank|Rank|default)\d*\]?:|\([\w =.]{1,40}\)|\d+:)\s?")
_STAMP = regex(r"[\dT/: .,-]*\d\d:\d\d:\d\d(?:[.,]\d+)?")


def _said_stamp(text: str) -> str:
    found = _STAMP.search(text)
    return found[0].strip(" -:,") if found else ""


__all__ = ["Failures"]
