"""Matrices that were made of a vector, and what is then computed with all of their zeros.

Recordings do not say which tensor an operator read. What they show is this: a matrix of a shape is
made of a diagonal or of class numbers; from there on, in the same call of a function of the
program, every operator that touches a matrix of that shape only looks at it (views, casts,
comparisons) until one factors it, solves with it or multiplies by it. Anything else that could have
made another matrix of that shape ends the search.
"""

from collections.abc import Iterator
from enum import Enum

import numpy as np

from pinchpoint.analysis.costs.call import OperatorCall
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.attribution import backward_nodes
from pinchpoint.analysis.host.frames import Owner, owners
from pinchpoint.analysis.host.input_arguments import Shape, elements, input_shapes
from pinchpoint.analysis.steps.in_steps import judged_steps, rows_in_steps
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import KeptRows, Rows

_LOOKS = regex(
    r"aten::(expand(_as)?|broadcast_\w+|(_unsafe_)?view(_as)?|(_unsafe_|_)?reshape(_\w+)?|mT|t"
    r"|transpose|permute|movedim|swapaxes|diagonal|detach_?|alias|contiguous|clone|to|_to_copy"
    r"|type_as|(un)?squeeze|select|slice|narrow|isclose|allclose|eq|ne|l[te]|g[te]|isfinite|isnan"
    r"|isinf|is_nonzero|item|_local_scalar_dense|_?all|_is_all_true|any|_is_any_true|result_type"
    r"|lift_fresh|set_|requires_grad_)"
)
_FACTORS = regex(
    r"aten::((linalg_)?(cholesky(_ex|_solve|_inverse)?|inv(_ex)?|inverse|solve(_ex)?|det|slogdet)"
    r"|linalg_(solve_triangular|lu(_factor)?(_ex)?|ldl_factor(_ex)?|eigh|eigvalsh|matrix_exp)"
    r"|triangular_solve|logdet|matrix_exp)"
)
_PRODUCTS = regex(r"aten::(matmul|mm|bmm|addmm|baddbmm|linear|mv|addmv)")
_DIAGONALS = regex(r"aten::diag(_embed)?")
_ONE_HOT = "aten::one_hot"
_FILLS = "aten::scatter_"  # inside of it: its first input is the matrix
# A walk ends here: no program keeps a covariance for longer without touching it.
_MOST_OPERATORS = 1000


class Structure(Enum):
    """What a matrix was made of."""

    DIAGONAL = "diagonal"
    ONE_HOT = "one-hot rows"


@dataclass(frozen=True, eq=False)
class MadeDense:
    """One matrix that was made in a judged step; rows of ``host_ops``."""

    structure: Structure
    shape: Shape
    made: int
    touched: Rows  # operators of the forward pass that read it, called by no operator
    used: Rows  # of these, the ones that factor, solve or multiply
    columns: int  # most of what it is multiplied by or solves for; 0: it is factored alone

    @property
    def kept_ratio(self) -> float:
        """What is left of the bytes that a use moves: of each row its one number, and what it is
        multiplied by, read and written."""
        beside = 2 * self.columns
        return (1 + beside) / (self.shape[-1] + beside)


@once_per_trace
def made_dense(trace: Trace) -> tuple[MadeDense, ...]:
    """All of them, in order of time; empty where shapes or functions were not recorded."""
    host = trace.host_ops
    if host is None or not host.known("shapes").any():
        return ()
    user = owners(trace) == Owner.USER
    operator = host["kind"] == HostKind.OPERATOR
    makes = np.array([_structure_of(name) is not None for name in trace.names], np.bool_)
    makers = np.flatnonzero(operator & makes[host["name"]] & rows_in_steps(trace, host))
    if not len(makers) or not user.any():
        return ()
    up, inner = parents(host), _callers(trace)
    alone = np.flatnonzero(operator & (inner == len(host)) & ~backward_nodes(trace))
    alone = alone[np.argsort(host["start_ns"][alone], kind="stable")]
    around = np.append(nearest(up, user), len(host))
    found = (
        _followed(trace, int(row), alone, int(around[row]))
        for row in makers.tolist()
        if inner[row] == len(host) and around[row] < len(host)
    )
    return tuple(one for one in found if one is not None)


@once_per_trace
def _callers(trace: Trace) -> KeptRows:
    """The operator that calls each row; their count where none does."""
    host = trace.host_ops
    assert host is not None
    operators = nearest(parents(host), host["kind"] == HostKind.OPERATOR)
    found: KeptRows = np.append(operators, len(host))[parents(host)]
    return found


@once_per_trace
def _in_order_of_callers(trace: Trace) -> KeptRows:
    order: KeptRows = np.argsort(_callers(trace), kind="stable")
    return order


def _called(trace: Trace, row: int) -> list[int]:
    """The rows that an operator calls itself."""
    order = _in_order_of_callers(trace)
    first, last = np.searchsorted(_callers(trace)[order], (row, row + 1))
    return [int(one) for one in order[first:last]]


def _structure_of(name: str) -> Structure | None:
    if _DIAGONALS.fullmatch(name):
        return Structure.DIAGONAL
    return Structure.ONE_HOT if name == _ONE_HOT else None


def _followed(trace: Trace, made: int, alone: Rows, function: int) -> MadeDense | None:
    """What reads the matrix that a row makes; None where nothing is surely computed with it.

    ``alone``: operators that no other calls, in order of time. ``function``: the innermost row of
    a function of the program around; the first use lies within it.
    """
    host = trace.host_ops
    assert host is not None
    structure, shape = _made(trace, host, made)
    if structure is None or shape is None:
        return None
    mine = alone[host["thread"][alone] == host["thread"][made]]
    first = int(np.searchsorted(host["start_ns"][mine], host.end_ns[made]))
    step = judged_steps(trace).step_of(host["start_ns"][[made]])
    after = mine[first : first + _MOST_OPERATORS]
    after = after[judged_steps(trace).step_of(host["start_ns"][after]) == step]
    touched, used, columns = list[int](), list[int](), list[int]()
    for row in after.tolist():
        name, call = trace.names[host["name"][row]], _call(trace, host, row)
        many = sum(_is_like(one, shape) for one in _shapes(call))
        uses, looks = _uses(name, call, structure, shape), _LOOKS.fullmatch(name)
        if not uses and not looks and (many or _may_make(trace, host, row, shape)):
            break
        if uses and not used and host["start_ns"][row] >= host.end_ns[function]:
            break
        touched += [row] * bool(many)
        used += [row] * uses
        columns += [one[-1] for one in _shapes(call) if uses and not _is_like(one, shape)]
    if not used:
        return None
    most = max(columns, default=0)
    return MadeDense(structure, shape, made, np.array(touched), np.array(used), most)


def _made(trace: Trace, host: Table, row: int) -> tuple[Structure | None, Shape | None]:
    """What a row makes, and the shape of that matrix; None where that is not known."""
    structure = _structure_of(trace.names[host["name"][row]])
    vector = _call(trace, host, row).shape(0)
    if vector is None or structure is None:
        return structure, None
    if structure is Structure.DIAGONAL:
        takes = trace.names[host["name"][row]] == "aten::diag" and len(vector) != 1
        return structure, None if takes else (*vector, vector[-1])
    fills = [r for r in _called(trace, row) if trace.names[host["name"][r]] == _FILLS]
    return structure, _call(trace, host, fills[0]).shape(0) if fills else None


def _uses(name: str, call: OperatorCall, structure: Structure, shape: Shape) -> bool:
    """Whether it computes with the matrix: a product of two such is one of others, perhaps, and
    one-hot rows that stand right of another matrix add its rows up."""
    like = [_is_like(one, shape) for one in _shapes(call)]
    if structure is Structure.DIAGONAL and _FACTORS.fullmatch(name):
        return any(like)
    if not _PRODUCTS.fullmatch(name) or sum(like) != 1 or len(like) < 2:
        return False
    return structure is Structure.DIAGONAL or like[-2]


def _is_like(one: Shape, shape: Shape) -> bool:
    """The same matrices, or views of them: more of them, expanded, or laid flat."""
    return one[-2:] == shape[-2:] and elements(one) % elements(shape) == 0


def _may_make(trace: Trace, host: Table, row: int, shape: Shape) -> bool:
    """Whether a matrix of that shape may come out of an operator where none goes in."""
    name, call = trace.names[host["name"][row]], _call(trace, host, row)
    inside = (_call(trace, host, one) for one in _called(trace, row))
    if any(_is_like(one, shape) for filled in inside for one in _shapes(filled)):
        return True
    lists = (call.shape_list(number) or () for number in range(len(call.shapes)))
    if any(one[-1:] == shape[-1:] for several in lists for one in several):
        return True  # laid beside each other
    shapes = list(_shapes(call))
    if _PRODUCTS.fullmatch(name) and len(shapes) > 1:
        return shapes[-2][-2:-1] == shape[-2:-1] and shapes[-1][-1:] == shape[-1:]
    try:
        together = np.broadcast_shapes(*shapes) if len(shapes) > 1 else ()
    except ValueError:
        return False
    return together[-2:] == shape[-2:]


def _shapes(call: OperatorCall) -> Iterator[Shape]:
    for number in call.tensors():
        one = call.shape(number)
        if one is not None:
            yield one


def _call(trace: Trace, host: Table, row: int) -> OperatorCall:
    return OperatorCall("", input_shapes(trace.text(host, "shapes", row) or "") or ())
