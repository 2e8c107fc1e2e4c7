"""Steps of programs of JAX that mark none: the calls of the one compiled function that they make.

JAX writes a range ``PjitFunction(NAME)`` around each call of a compiled function, on the thread
that makes it. With several devices the launches follow on threads of XLA's, outside that range, so
that what repeats among launches does not show the calls. A program that calls one function alone
makes a step with each call; small functions beside it (of ``jax.numpy``, each compiled) are part of
the step; and several that it calls in the same order each time are one step together. A program
that calls another one each time shows no steps here.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.steps.module_nesting import outermost
from pinchpoint.analysis.steps.repetition import Spans
from pinchpoint.regex import regex
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.names import rows_named

_CALL = regex(r"PjitFunction\((.+)\)$")
FEWEST_CALLS = 3  # two alike halves may be chance
# Of the time in all calls. What remains are small functions of jax.numpy; a second function of
# some size (a loss that is read, an evaluation) takes more.
NEARLY_ALL_RATIO = 0.9
# As sure as calls of a function are that repeat the same launches (repetition.CONFIDENCE).
CONFIDENCE = 0.8


def steps_by_calls(trace: Trace) -> Spans | None:
    """From one call of the only compiled function to the next; the last ends with its call."""
    host = trace.host_ops
    if host is None or not len(host):
        return None
    calls = host.take(rows_named(trace, host, lambda name: _CALL.match(name) is not None))
    if len(np.unique(calls["thread"])) != 1:
        return None
    calls = outermost(calls)  # JAX writes the range of a call twice, one in the other
    names, which = np.unique(calls["name"], return_inverse=True)
    took_ns = np.bincount(which, calls["duration_ns"])
    mine = calls.take(which == took_ns.argmax())
    if len(mine) < FEWEST_CALLS or took_ns.max() < NEARLY_ALL_RATIO * took_ns.sum():
        return _in_turn(calls, which)
    found = _CALL.match(trace.names[int(names[took_ns.argmax()])])
    assert found is not None
    start, end = mine["start_ns"], np.append(mine["start_ns"][1:], mine.end_ns[-1])
    basis = f"no markers; the calls of the compiled {found[1]!r}, {len(mine)} times"
    return Spans(start, end, np.arange(len(mine)), basis, CONFIDENCE)


FEWEST_ROUNDS = 5  # of several functions in turn: three may be the halves of something else
LONGEST_ROUND = 32  # calls of compiled functions in one step: those of jax.numpy among them


def _in_turn(calls: Table, which: Rows) -> Spans | None:
    """Rounds of several functions that are called in the same order each time, without exception.

    A round begins where the program was longest outside of them before.
    """
    order = np.argsort(calls["start_ns"], kind="stable")
    calls, which = calls.take(order), which[order]
    each = next(
        (
            length
            for length in range(2, min(LONGEST_ROUND, len(which) // FEWEST_ROUNDS) + 1)
            if np.array_equal(which[length:], which[:-length])
        ),
        None,
    )
    if each is None or len(np.unique(which)) < 2:
        return None
    pause_ns = calls["start_ns"][1:] - calls.end_ns[:-1]
    turn = np.arange(1, len(calls)) % each
    first = int((np.bincount(turn, pause_ns) / np.bincount(turn)).argmax())
    at = np.arange(first, len(calls), each)
    if len(at) < FEWEST_ROUNDS:
        return None
    start = calls["start_ns"][at]
    end = np.append(start[1:], calls.end_ns[min(at[-1] + each, len(calls)) - 1])
    basis = f"no markers; {each} calls of compiled functions in turn, {len(at)} times"
    return Spans(start, end, np.arange(len(at)), basis, CONFIDENCE)


def called_function(trace: Trace, device_ops: Rows) -> str | None:
    """The compiled function that most of these device operations' time is of; None where most is
    of none, or none is recorded."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None or not len(device_ops):
        return None
    calls = np.zeros(len(host), np.bool_)
    calls[rows_named(trace, host, lambda name: _CALL.match(name) is not None)] = True
    if not calls.any():
        return None
    around = np.append(nearest(parents(host), calls), len(host))
    call = around[ops.filled("host_op", len(host))[device_ops]]
    took = ops["duration_ns"][device_ops]
    known = call < len(host)
    by_name = np.bincount(host["name"][call[known]], took[known], 1)
    if 2 * by_name.max() < took.sum():
        return None
    found = _CALL.match(trace.names[int(by_name.argmax())])
    return found[1] if found else None
