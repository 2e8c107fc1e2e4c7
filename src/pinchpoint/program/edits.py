"""Edits that fit the statement at hand, by rule; none where the change is more than that.

Each looks at the syntax tree of one file and answers with the lines that it replaces.
"""

import ast
from collections.abc import Callable

from pinchpoint.program.changes import Edit, name_of, replaced, with_keywords
from pinchpoint.program.device_reads import rarely, unread
from pinchpoint.program.files import Source

_OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adagrad")  # torch.optim's with fused=True
ELSEWHERE = (
    "cpu-few-threads",
    "cpu-unfused-optimizer",
)  # rules whose fix is not where the time goes


def edit_for(rule_id: str, source: Source, line: int, count: int | None) -> Edit | None:
    """The edit that a rule's fix means at this line; None where none is known to fit.

    ``count``: of loader workers, or of threads, that the fix asks for.
    """
    if rule_id == "cpu-few-threads":
        return _threads(source, count)
    if rule_id in LOADER:
        return _loader_edit(source, {k: v for k, v in _loader(rule_id, count).items() if v})
    known = AT_LINE.get(rule_id)
    statement = source.statement_at(line)
    if rule_id in ("unfused-optimizer", "cpu-unfused-optimizer"):
        return _fused(source)
    return None if known is None or statement is None else known(source, statement)


def _not_waited_for(source: Source, statement: ast.stmt) -> Edit | None:
    """``non_blocking=True`` for the copies to a device in a statement."""
    for call in ast.walk(statement):
        attr = getattr(call.func, "attr", "") if isinstance(call, ast.Call) else ""
        if attr in ("to", "cuda") and isinstance(call, ast.Call):
            return with_keywords(source, call, {"non_blocking": "True"})
    return None


def _gone(*names: str) -> Callable[[Source, ast.stmt], Edit | None]:
    """The statement goes, if it is a call of one of these and nothing else."""

    def edit(source: Source, statement: ast.stmt) -> Edit | None:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") not in names:
            return None
        return Edit(statement.lineno, statement.end_lineno or statement.lineno, ())

    return edit


# Rules whose fix is at the line where the time goes, and the edit of its statement.
AT_LINE: dict[str, Callable[[Source, ast.stmt], Edit | None]] = {
    "sync-in-loop": unread,
    "metric-on-cpu": unread,
    "per-param-sync": unread,
    "heavy-logging": rarely,
    "pageable-h2d": _not_waited_for,
    "h2d-not-overlapped": _not_waited_for,
    "empty-cache-in-loop": _gone("empty_cache"),
    "explicit-synchronize": _gone("synchronize"),
    "python-gc": _gone("collect"),
}
LOADER = {
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
    return {name: values[name] for name in LOADER[rule_id]}


def _loader_edit(source: Source, keywords: dict[str, str]) -> Edit | None:
    calls = [
        call
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call) and name_of(call).endswith("DataLoader")
    ]
    if len(calls) != 1:
        return None
    there = {k.arg: k.value for k in calls[0].keywords}
    wanted = {k: v for k, v in keywords.items() if not _has_more(there.get(k), v)}
    return with_keywords(source, calls[0], wanted)


def _has_more(there: ast.expr | None, wanted: str) -> bool:
    """Whether a number in the program is at least the one that is advised: more is never undone."""
    value = getattr(there, "value", None)
    return isinstance(value, int) and wanted.isdecimal() and value >= int(wanted)


def _optimizer(source: Source) -> ast.Call | None:
    calls = [
        call
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call) and name_of(call).rpartition(".")[2] in _OPTIMIZERS
    ]
    return calls[0] if len(calls) == 1 else None


def _fused(source: Source) -> Edit | None:
    """``fused=True``; torch refuses it beside ``foreach`` and where it is to be differentiated."""
    call = _optimizer(source)
    there = {} if call is None else {k.arg: k.value for k in call.keywords}
    if getattr(there.get("differentiable"), "value", False):
        return None
    foreach = {"foreach": "False"} if "foreach" in there else {}
    return with_keywords(source, call, foreach | {"fused": "True"})


def _threads(source: Source, count: int | None) -> Edit | None:
    """The number of threads that the program itself sets."""
    calls = [
        call
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call)
        and name_of(call).rpartition(".")[2] == "set_num_threads"
        and len(call.args) == 1
    ]
    if len(calls) != 1 or count is None:
        return None
    return replaced(source, calls[0], [(calls[0].args[0], str(count))])
