"""Edits that fit the statement at hand, by rule; none where the change is more than that.

Each looks at the syntax tree of one file and answers with the lines that it replaces. ``step`` in
an edit stands for whatever counts the steps of the loop around it.
"""

import ast
from collections.abc import Callable, Iterator
from itertools import accumulate

from pinchpoint.frozen import dataclass
from pinchpoint.program.files import Source

READ_EVERY = 50  # steps from one read of a value to the next: rare enough not to show
_GUARDS = ("print", "log", "info", "debug", "warning", "warn", "error", "write", "update")
_TRACKS = ("add_scalar", "set_postfix", "set_description", "log_metric")
_OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adagrad")  # torch.optim's with fused=True


@dataclass(frozen=True)
class Edit:
    """Lines ``first`` to ``last`` (from 1) become ``new``."""

    first: int
    last: int
    new: tuple[str, ...]


ELSEWHERE = ("cpu-few-threads",)  # rules whose fix is not where the time goes


def edit_for(rule_id: str, source: Source, line: int, count: int | None) -> Edit | None:
    """The edit that a rule's fix means at this line; None where none is known to fit.

    ``count``: of loader workers, or of threads, that the fix asks for.
    """
    if rule_id == "cpu-few-threads":
        return _threads(source, count)
    if rule_id in _LOADER:
        return _loader_edit(source, {k: v for k, v in _loader(rule_id, count).items() if v})
    known = _AT_LINE.get(rule_id)
    statement = source.statement_at(line)
    if rule_id == "unfused-optimizer":
        return _with_keywords(source, _optimizer(source), {"fused": "True"})
    return None if known is None or statement is None else known(source, statement)


# ------------------------------------------------------------------------------------------------
# A device value that the host reads.


def _unread(source: Source, statement: ast.stmt) -> Edit | None:
    """Leave the value on the device, or read it now and then."""
    if isinstance(statement, ast.If):
        return _branch(source, statement)
    reads = list(_reads(statement))
    if not reads or isinstance(statement, ast.For | ast.While | ast.With):
        return None
    if isinstance(statement, ast.Assert):
        return _on_device_assert(source, statement)
    if isinstance(statement, ast.Expr) and _only_tells(statement.value):
        return _now_and_then(source, statement)
    return _replaced(source, statement, [(r, f"{_of(source, r)}.detach()") for r in reads])


def _rarely(source: Source, statement: ast.stmt) -> Edit | None:
    """A statement that only prints, logs or draws, now and then; what it reads may be no tensor."""
    tells = isinstance(statement, ast.Expr) and _only_tells(statement.value)
    return _now_and_then(source, statement) if tells else None


def _reads(node: ast.AST) -> Iterator[ast.Call]:
    """Calls of ``item`` and ``tolist``."""
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or call.args or call.keywords:
            continue
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("item", "tolist"):
            yield call


def _of(source: Source, read: ast.Call) -> str:
    assert isinstance(read.func, ast.Attribute)
    return ast.get_source_segment(source.text, read.func.value) or ""


def _branch(source: Source, statement: ast.If) -> Edit | None:
    """A check that only complains can be rare; a choice of one value is made on the device."""
    reads = list(_reads(statement.test))
    if not reads or statement.test.end_lineno != statement.lineno:
        return None
    test = _text(source, statement.test)
    if all(_complains(inner) for inner in statement.body):
        return _line(source, statement.lineno, test, f"step % {READ_EVERY} == 0 and {test}")
    only = statement.body[0] if len(statement.body) == 1 and not statement.orelse else None
    if not isinstance(only, ast.Assign) or not isinstance(only.targets[0], ast.Name):
        return None
    name, value = only.targets[0].id, _text(source, only.value)
    unread = test.replace(_text(source, reads[0]), _of(source, reads[0]))
    new = f"{_indent(source, statement)}{name} = torch.where({unread}, {value}, {name})"
    return Edit(statement.lineno, statement.end_lineno or statement.lineno, (new,))


def _complains(statement: ast.stmt) -> bool:
    told = isinstance(statement, ast.Expr) and _only_tells(statement.value)
    return told or isinstance(statement, ast.Raise)


def _only_tells(value: ast.expr) -> bool:
    """A call that prints, logs or draws."""
    if not isinstance(value, ast.Call):
        return False
    name = value.func.id if isinstance(value.func, ast.Name) else getattr(value.func, "attr", "")
    return name in _GUARDS or name in _TRACKS


def _on_device_assert(source: Source, statement: ast.Assert) -> Edit | None:
    read = next(_reads(statement.test))
    test = _text(source, statement.test).replace(_text(source, read), _of(source, read))
    new = f"{_indent(source, statement)}torch._assert_async({test})"
    return Edit(statement.lineno, statement.end_lineno or statement.lineno, (new,))


def _now_and_then(source: Source, statement: ast.stmt) -> Edit:
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    body = tuple(f"    {line}" for line in source.lines[first - 1 : last])
    guard = f"{_indent(source, statement)}if step % {READ_EVERY} == 0:"
    return Edit(first, last, (guard, *body))


# ------------------------------------------------------------------------------------------------
# Copies, calls that need not be there, loaders and optimizers.


def _not_waited_for(source: Source, statement: ast.stmt) -> Edit | None:
    """``non_blocking=True`` for the copies to a device in a statement."""
    for call in ast.walk(statement):
        attr = getattr(call.func, "attr", "") if isinstance(call, ast.Call) else ""
        if attr in ("to", "cuda") and isinstance(call, ast.Call):
            return _with_keywords(source, call, {"non_blocking": "True"})
    return None


def _gone(*names: str) -> Callable[[Source, ast.stmt], Edit | None]:
    """The statement goes, if it is a call of one of these and nothing else."""

    def edit(source: Source, statement: ast.stmt) -> Edit | None:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") not in names:
            return None
        return Edit(statement.lineno, statement.end_lineno or statement.lineno, ())

    return edit


_AT_LINE: dict[str, Callable[[Source, ast.stmt], Edit | None]] = {
    "sync-in-loop": _unread,
    "metric-on-cpu": _unread,
    "per-param-sync": _unread,
    "heavy-logging": _rarely,
    "pageable-h2d": _not_waited_for,
    "h2d-not-overlapped": _not_waited_for,
    "empty-cache-in-loop": _gone("empty_cache"),
    "explicit-synchronize": _gone("synchronize"),
    "python-gc": _gone("collect"),
}
_LOADER = {
    "dataloader-starved": ("num_workers", "persistent_workers"),
    "slow-transform": ("num_workers", "persistent_workers"),
    "decode-bound": ("num_workers", "persistent_workers"),
    "worker-respawn": ("persistent_workers",),
    "prefetch-shallow": ("prefetch_factor",),
}
_PREFETCHED = 8  # batches a worker, as rule prefetch-shallow says


def _loader(rule_id: str, workers: int | None) -> dict[str, str]:
    values = {
        "num_workers": "" if workers is None else str(workers),
        "persistent_workers": "True",
        "prefetch_factor": str(_PREFETCHED),
    }
    return {name: values[name] for name in _LOADER[rule_id]}


def _loader_edit(source: Source, keywords: dict[str, str]) -> Edit | None:
    calls = [
        call
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call) and _name(call).endswith("DataLoader")
    ]
    return _with_keywords(source, calls[0] if len(calls) == 1 else None, keywords)


def _optimizer(source: Source) -> ast.Call | None:
    calls = [
        call
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call) and _name(call).rpartition(".")[2] in _OPTIMIZERS
    ]
    return calls[0] if len(calls) == 1 else None


def _threads(source: Source, count: int | None) -> Edit | None:
    """The number of threads that the program itself sets."""
    calls = [
        call
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call)
        and _name(call).rpartition(".")[2] == "set_num_threads"
        and len(call.args) == 1
    ]
    if len(calls) != 1 or count is None:
        return None
    return _replaced(source, calls[0], [(calls[0].args[0], str(count))])


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ""


# ------------------------------------------------------------------------------------------------
# Text of the file, and changes of it that keep its form.


def _with_keywords(source: Source, call: ast.Call | None, keywords: dict[str, str]) -> Edit | None:
    """The call with these keywords set; None if it has them already."""
    if call is None or not keywords:
        return None
    there = {k.arg: k.value for k in call.keywords if k.arg}
    changes = [
        (*_span(source, there[k]), value)
        for k, value in keywords.items()
        if k in there and _text(source, there[k]) != value
    ]
    new = ", ".join(f"{k}={value}" for k, value in keywords.items() if k not in there)
    if new:
        before = source.text.encode()[: _span(source, call)[1] - 1].rstrip()
        lead = "" if before.endswith(b"(") else " " if before.endswith(b",") else ", "
        end = "," if before.endswith(b",") else ""
        changes.append((len(before), len(before), f"{lead}{new}{end}"))
    return _changed(source, call, changes) if changes else None


def _replaced(source: Source, inside: ast.AST, changes: list[tuple[ast.expr, str]]) -> Edit | None:
    return _changed(source, inside, [(*_span(source, node), text) for node, text in changes])


def _changed(source: Source, inside: ast.AST, changes: list[tuple[int, int, str]]) -> Edit | None:
    """The lines of a node with these stretches of bytes replaced."""
    first, last = inside.lineno, inside.end_lineno  # type: ignore[attr-defined]
    starts = _starts(source)
    data = source.text.encode()
    begin, end = starts[first - 1], starts[last] - 1 if last < len(starts) else len(data)
    for start, stop, text in sorted(changes, reverse=True):
        data = data[:start] + text.encode() + data[stop:]
        end += len(text.encode()) - (stop - start)
    return Edit(first, last, tuple(data[begin:end].decode().split("\n")))


def _starts(source: Source) -> list[int]:
    """Where each line begins, in bytes."""
    lengths = [len(line.encode()) + 1 for line in source.lines]
    return list(accumulate(lengths, initial=0))[:-1]


def _span(source: Source, node: ast.expr) -> tuple[int, int]:
    starts = _starts(source)
    last = node.end_lineno or node.lineno
    return starts[node.lineno - 1] + node.col_offset, starts[last - 1] + (node.end_col_offset or 0)


def _text(source: Source, node: ast.AST) -> str:
    return ast.get_source_segment(source.text, node) or ""


def _line(source: Source, number: int, old: str, new: str) -> Edit:
    return Edit(number, number, (source.lines[number - 1].replace(old, new, 1),))


def _indent(source: Source, statement: ast.stmt) -> str:
    return source.lines[statement.lineno - 1][: statement.col_offset]
