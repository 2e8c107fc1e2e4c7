"""How many bytes of keys and values one decode round reads from the cache.

Two kinds of evidence. Detailed rounds of engines say how many positions of the cache their requests
hold; what one position takes is in the shapes of the operators that write it, one call a layer.
Elsewhere attention with a query of one token says how many keys it meets. Layers that look at a
window only read less than either: the bytes are the most that the round can read.
"""

import numpy as np

from pinchpoint.analysis.costs import OperatorCall
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.work.operator_work import NOT_KNOWN, call_of
from pinchpoint.analysis.work.serving import named_rounds
from pinchpoint.analysis.work.workload import attention_rows, workload
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.names import rows_named

# Operators that write keys and values: where keys, values (or the rotated part) and the cache are.
_WRITES = {
    "_C_cache_ops::reshape_and_cache": (0, 1, 2),
    "_C_cache_ops::reshape_and_cache_flash": (0, 1, 2),
    "_C_cache_ops::concat_and_cache_mla": (0, 1, 2),
    "sglang::store_cache": (0, 1, 2),
}
_NO_LENGTHS = (
    "the names of its rounds have no lengths of sequences; detailed annotations of vLLM and SGLang"
    " have"
)
_NO_WRITES = (
    "no write to the cache was recorded with its shapes: record a round outside of graph replays,"
    " with record_shapes=True"
)
_NO_SHAPES = "no attention was recorded with its shapes: record with record_shapes=True"


@dataclass(frozen=True)
class KvCache:
    """What one decode round reads, the median of those of which it is known."""

    rounds: int  # of which it is known
    positions: float | None  # of the cache, of all requests of a round
    position_bytes: int | None  # keys and values of all layers
    read_bytes: int | None  # at most
    why: str | None  # where it is not known


@once_per_trace
def kv_cache(trace: Trace) -> KvCache | None:
    """None where nothing decodes, as far as the recording tells."""
    rows, told = named_rounds(trace)
    decoding = [one for one in told if one.decode_requests]
    if decoding:
        return _of_rounds(trace, rows, [one.decode_positions for one in decoding])
    return _of_attention(trace) if not told and workload(trace).decodes else None


def _of_rounds(trace: Trace, rounds: Rows, held: list[int | None]) -> KvCache:
    known = [positions for positions in held if positions is not None]
    each = _position_bytes(trace, rounds)
    if not known:
        return KvCache(0, None, each, None, _NO_LENGTHS)
    typical = float(np.median(known))
    if each is None:
        return KvCache(len(known), typical, None, None, _NO_WRITES)
    return KvCache(len(known), typical, each, round(typical * each), None)


def _position_bytes(trace: Trace, rounds: Rows) -> int | None:
    """What the layers of one round write of a token; None where no round shows it."""
    host = trace.host_ops
    assert host is not None
    writes = rows_named(trace, host, _WRITES.__contains__) & host.known("shapes")
    starts, ends = host["start_ns"][rounds], host.end_ns[rounds]
    found: dict[int, int] = {}
    for row in np.flatnonzero(writes).tolist():
        at = int(np.searchsorted(starts, host["start_ns"][row], "right")) - 1
        call = _call(trace, row)
        if at < 0 or host["start_ns"][row] >= ends[at] or call is None:
            continue
        found[at] = found.get(at, 0) + _written_a_token(call)
    return max(found.values(), default=0) or None


def _call(trace: Trace, row: int) -> OperatorCall | None:
    host = trace.host_ops
    assert host is not None
    said = (int(host.filled(c, NOT_KNOWN)[row]) for c in ("shapes", "dtypes", "values"))
    return call_of(trace.names, int(host["name"][row]), *said)


def _written_a_token(call: OperatorCall) -> int:
    keys, values, cache = _WRITES[call.name]
    first, second = call.shape(keys), call.shape(values)
    if first is None or second is None or not first[0]:
        return 0
    return (call.size(keys) + call.size(values)) // first[0] * call.element_bytes(cache)


def _of_attention(trace: Trace) -> KvCache:
    """Keys and values that the attention of each judged step is given: (batch, head, length, d)."""
    host = trace.host_ops
    assert host is not None
    calls = attention_rows(trace)
    inside = np.append(nearest(parents(host), calls), len(host))[parents(host)] < len(host)
    outer = np.flatnonzero(calls & ~inside & (host["kind"] == HostKind.OPERATOR))
    steps = judged_steps(trace)
    read: dict[int, int] = {}
    held: dict[int, int] = {}
    of_step = steps.step_of(host["start_ns"][outer]).tolist()
    for row, step in zip(outer.tolist(), of_step, strict=True):
        call = _call(trace, row)
        keys = call.shape(1) if call else None
        if step < 0 or call is None or keys is None or len(keys) != 4:
            continue
        read[step] = read.get(step, 0) + call.bytes(1) + call.bytes(2)
        held[step] = max(held.get(step, 0), keys[0] * keys[2])
    if not read:
        return KvCache(0, None, None, None, _NO_SHAPES)
    typical, positions = int(np.median(list(read.values()))), float(np.median(list(held.values())))
    return KvCache(len(read), positions, round(typical / positions), typical, None)
