"""Edits of a statement in which the host reads a value of the device."""

import ast

from pinchpoint.program.changes import Edit, in_line, indent, name_of, replaced, text_of
from pinchpoint.program.files import Source

READ_EVERY = 50  # steps from one read of a value to the next: rare enough not to show
_GUARDS = ("print", "log", "info", "debug", "warning", "warn", "error", "write", "update")
_TRACKS = ("add_scalar", "set_postfix", "set_description", "log_metric")


def unread(source: Source, statement: ast.stmt) -> Edit | None:
    """Leave the value on the device, or read it now and then."""
    if isinstance(statement, ast.If):
        return _branch(source, statement)
    reads = _reads(statement)
    if not reads or isinstance(statement, ast.For | ast.While | ast.With):
        return None
    if isinstance(statement, ast.Assert):
        return _on_device_assert(source, statement)
    if isinstance(statement, ast.Expr) and _only_tells(statement.value):
        return _now_and_then(source, statement)
    if not all(_stays_a_value(statement, read) for read in reads) or _decides(source, statement):
        return None
    return replaced(source, statement, [(r, f"{_of(source, r)}.detach()") for r in reads])


def rarely(source: Source, statement: ast.stmt) -> Edit | None:
    """A statement that only prints, logs or draws, now and then; what it reads may be no tensor."""
    tells = isinstance(statement, ast.Expr) and _only_tells(statement.value)
    return _now_and_then(source, statement) if tells else None


def _reads(node: ast.AST) -> list[ast.Call]:
    """Calls of ``item`` and ``tolist``, with a ``float`` around them; without any, of ``float``,
    ``int`` and ``bool``."""
    calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
    methods = [c for c in calls if _method(c) in ("item", "tolist") and not (c.args or c.keywords)]
    turned = [c for c in calls if name_of(c) in ("float", "int", "bool") and len(c.args) == 1]
    if not methods:
        return turned
    around = [call for call in turned if call.args[0] in methods]
    return [c for c in (*around, *methods) if not any(c is outer.args[0] for outer in around)]


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _inner(read: ast.Call) -> ast.expr:
    """What is read."""
    inner = read.func.value if isinstance(read.func, ast.Attribute) else read.args[0]
    reads = isinstance(inner, ast.Call) and _method(inner) in ("item", "tolist")
    return _inner(inner) if reads and isinstance(inner, ast.Call) else inner


def _of(source: Source, read: ast.Call) -> str:
    """What is read, as something that a method can be called on."""
    inner = _inner(read)
    text = text_of(source, inner)
    simple = isinstance(inner, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return text if simple else f"({text})"


_KEEPS = ("append", "appendleft", "add", "extend")  # methods that take a tensor as it is
_PASSES_ON = (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Starred)


def _stays_a_value(statement: ast.stmt, read: ast.Call) -> bool:
    """Whether a tensor does where the read value stands: nothing around it reads the value again.

    A list is only left where it is kept whole.
    """
    of = {child: node for node in ast.walk(statement) for child in ast.iter_child_nodes(node)}
    at: ast.AST = read
    while (around := of.get(at)) is not None and around is not statement:
        if isinstance(around, ast.Call):
            return _method(around) in _KEEPS and at in around.args
        if not isinstance(around, _PASSES_ON) or _method(read) == "tolist":
            return False
        at = around
    keeps = isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return)
    return keeps and at is getattr(statement, "value", None) and _method(read) != "tolist"


def _decides(source: Source, statement: ast.stmt) -> bool:
    """Whether what is assigned is looked at by the host elsewhere: then the read only moves."""
    targets = [t for t in getattr(statement, "targets", ()) if isinstance(t, ast.Name)]
    names = {target.id for target in targets}
    looks = (
        test
        for node in ast.walk(source.tree)
        for test in (getattr(node, "test", None), getattr(node, "iter", None))
        if isinstance(test, ast.expr)
    )
    said = (n for n in ast.walk(source.tree) if isinstance(n, ast.expr) and _only_tells(n))
    return any(
        isinstance(inner, ast.Name) and inner.id in names
        for look in (*looks, *said)
        for inner in ast.walk(look)
    )


def _branch(source: Source, statement: ast.If) -> Edit | None:
    """A check that only complains can be rare; a choice of one value is made on the device."""
    if statement.test.end_lineno != statement.lineno:
        return None
    test = text_of(source, statement.test)
    if all(_complains(inner) for inner in statement.body):
        counts = _counter(source, statement)
        rarely = f"{counts} % {READ_EVERY} == 0 and {_as_operand(statement.test, test)}"
        return in_line(source, statement.lineno, test, rarely) if counts else None
    only = statement.body[0] if len(statement.body) == 1 and not statement.orelse else None
    reads = _reads(statement.test)
    if not isinstance(only, ast.Assign) or len(only.targets) != 1 or len(reads) > 1:
        return None
    if not isinstance(only.targets[0], ast.Name) or not _is_on_device(statement.test, reads):
        return None
    name, value = only.targets[0].id, text_of(source, only.value)
    unread = test.replace(text_of(source, reads[0]), _of(source, reads[0])) if reads else test
    new = f"{indent(source, statement)}{name} = torch.where({unread}, {value}, {name})"
    return Edit(statement.lineno, statement.end_lineno or statement.lineno, (new,))


def _is_on_device(test: ast.expr, reads: list[ast.Call]) -> bool:
    """Whether the test without its read is one truth in a tensor: a comparison, any, all."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and reads:
        return any(side in reads for side in (test.left, *test.comparators))
    if isinstance(test, ast.Call) and test in reads:
        inner = _inner(test)
        return isinstance(inner, ast.Compare) or _is_on_device(inner, [])
    return not reads and isinstance(test, ast.Call) and _method(test) in ("any", "all")


def _as_operand(test: ast.expr, text: str) -> str:
    loose = isinstance(test, ast.IfExp | ast.Lambda | ast.NamedExpr) or (
        isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)
    )
    return f"({text})" if loose else text


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
    reads = _reads(statement.test)
    if len(reads) != 1 or not _is_on_device(statement.test, reads):
        return None
    test = text_of(source, statement.test).replace(text_of(source, reads[0]), _of(source, reads[0]))
    new = f"{indent(source, statement)}torch._assert_async({test})"
    return Edit(statement.lineno, statement.end_lineno or statement.lineno, (new,))


def _now_and_then(source: Source, statement: ast.stmt) -> Edit | None:
    counts = _counter(source, statement)
    if counts is None:
        return None
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    body = tuple(f"    {line}" for line in source.lines[first - 1 : last])
    guard = f"{indent(source, statement)}if {counts} % {READ_EVERY} == 0:"
    return Edit(first, last, (guard, *body))


def _counter(source: Source, statement: ast.stmt) -> str | None:
    """What counts the steps around a statement; None where nothing is known to.

    Of several loops around it that with the backward pass or the optimizer's step.
    """
    loops = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.For | ast.While)
        and node.lineno < statement.lineno <= (node.end_lineno or 0)
    ]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    inside = [n for n in ast.walk(source.tree) if isinstance(n, functions)]
    around = [n for n in inside if n.lineno < statement.lineno <= (n.end_lineno or 0)]
    begin = max((n.lineno for n in around), default=0)  # a loop around the function counts calls
    loops = [loop for loop in loops if loop.lineno > begin]
    counted = [(loop, name) for loop in loops if (name := _counted_by(loop))]
    trains = [(loop, name) for loop, name in counted if _trains(loop)]
    chosen = trains or (counted if len(loops) == 1 else [])
    return max(chosen, key=lambda pair: pair[0].lineno)[1] if chosen else None


def _counted_by(loop: ast.For | ast.While) -> str | None:
    """The number that a loop counts up: of ``range``, of ``enumerate``, or by itself."""
    if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call):
        counts: ast.expr | None = loop.target if name_of(loop.iter).endswith("range") else None
        if name_of(loop.iter).endswith("enumerate") and isinstance(loop.target, ast.Tuple):
            counts = loop.target.elts[0]
        if isinstance(counts, ast.Name) and counts.id != "_":
            return counts.id
    own = (n for n in loop.body if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add))
    ones = (n for n in own if isinstance(n.value, ast.Constant) and n.value.value == 1)
    return next((n.target.id for n in ones if isinstance(n.target, ast.Name)), None)


def _trains(loop: ast.For | ast.While) -> bool:
    """Whether a round of the loop itself, not of one inside it, steps or goes backward."""
    inner = {n for part in loop.body for n in ast.walk(part) if isinstance(n, ast.For | ast.While)}
    below = {n for one in inner for n in ast.walk(one)}
    calls = (n for part in loop.body for n in ast.walk(part) if isinstance(n, ast.Call))
    return any(c not in below and _method(c) in ("backward", "step") for c in calls)
