"""What a frame was at: a call, by the names in the program, or nothing in particular.

A thread that runs bytecode gives the interpreter's lock away after a call, at the beginning of a
function and at the end of a round of a loop, so that a look finds it there: at a call there was
the call, or what came before it.
"""

import dis
import functools
from types import CodeType

_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_DEREF")
_CALLS = ("CALL", "PRECALL")  # Python 3.11 calls at the second, once a line has run often
_ARITHMETIC = ("BINARY_OP", "COMPARE_OP", "CONTAINS_OP", "BINARY_SUBSCR", "STORE_SUBSCR")
_LONGEST = 80  # characters of a chain of names


@functools.lru_cache(maxsize=1024)
def callee(code: CodeType, at: int) -> tuple[str, ...]:
    """The names of what the instruction at an offset calls: ``gc``, ``collect``.

    Empty where it calls nothing, or the interpreter keeps no columns (``-X no_debug_ranges``). What
    is called begins where the call begins, and ends before it.
    """
    found = instructions(code)
    call = next((one for one in found if one.offset == at), None)
    where = call.positions if call is not None and call.opname.startswith(_CALLS) else None
    if where is None or where.col_offset is None:
        return ()
    begin = (where.lineno, where.col_offset)
    names = [
        one
        for one in found
        if one.offset < at
        and one.positions is not None
        and (one.positions.lineno, one.positions.col_offset) == begin
        and isinstance(one.argval, str)
    ]
    first = max((n for n, one in enumerate(names) if one.opname.startswith(_LOADS)), default=None)
    return () if first is None else tuple(str(one.argval) for one in names[first:])


def doing(code: CodeType, at: int) -> str:
    """``pattern.match()`` for a call, ``@`` for an operation on two values; else empty."""
    names = callee(code, at)
    if names:
        return f"{'.'.join(names)[:_LONGEST]}()"
    one = next((one for one in instructions(code) if one.offset == at), None)
    if one is None:
        return ""
    if one.opname.startswith(_CALLS):
        return "()"
    if one.opname.startswith(_ARITHMETIC):
        return (one.argrepr or "[]")[:_LONGEST]
    return ""


@functools.lru_cache(maxsize=256)
def instructions(code: CodeType) -> tuple[dis.Instruction, ...]:
    """All of a function, in order."""
    return tuple(dis.get_instructions(code))
