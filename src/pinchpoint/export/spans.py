"""Steps and phases as spans of OpenTelemetry: through a tracer, or as a file in OTLP JSON.

A few spans a step, never one a kernel: trace stores are made for requests, not for a million
events. The span of a step runs from completion to completion; a phase is an annotation of the
program (forward, data loading, optimizer), where the host did it, which can be earlier.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from pinchpoint.analysis.host.ancestry import above, parents
from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.frozen import dataclass
from pinchpoint.json_text import encoded
from pinchpoint.report.plain import plain
from pinchpoint.trace import HostKind, Trace

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

MOST_PHASES = 50  # of one step
SHORTEST_PHASE_RATIO = 0.001  # of the step: shorter ones nobody looks at
_SCOPE = "pinchpoint"
_INTERNAL = 1  # SPAN_KIND_INTERNAL

Attributes = Mapping[str, str | int | float | bool]


@dataclass(frozen=True)
class Span:
    """Times are Unix nanoseconds, or since the trace began where its time of day is not known."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    inside: tuple["Span", ...] = ()


def spans(trace: Trace) -> Span | None:
    """The recording, its steps and their phases; None for a recording without steps."""
    found = steps(trace)
    if found.how == "none":
        return None
    begins = trace.origin_ns or 0
    inside = tuple(_step(trace, found, position, begins) for position in range(len(found)))
    about = {
        "pinchpoint.source": plain(trace.source.path, 300),
        "pinchpoint.format": trace.source.format,
        "pinchpoint.clock": "unix" if trace.origin_ns is not None else "since the trace began",
    }
    return Span("recording", inside[0].start_ns, inside[-1].end_ns, about, inside)


def log_spans(trace: Trace, tracer: "Tracer") -> int:
    """Hand the spans to a tracer of OpenTelemetry, as children of its current span; how many."""
    root = spans(trace)
    return 0 if root is None else _sent(root, tracer)


def otlp_json(trace: Trace) -> bytes:
    """The spans as one message of OTLP in JSON, which collectors read from files.

    Ids follow from the spans, so that the same recording gives the same file.
    """
    root = spans(trace)
    listed = [] if root is None else list(_listed(root, _id(root, 16), ""))
    resource = {"attributes": _attributes({"service.name": "pinchpoint"})}
    scope = {"scope": {"name": _SCOPE}, "spans": listed}
    document = {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}
    return encoded(document) + b"\n"


def _step(trace: Trace, found: Steps, position: int, begins: int) -> Span:
    number = int(found.number[position])
    start, end = int(found.start_ns[position]), int(found.end_ns[position])
    about: dict[str, str | int | float | bool] = {
        "pinchpoint.step.number": number,
        "pinchpoint.step.complete": bool(found.complete[position]),
    }
    parts = breakdown(trace)
    for part, ns in zip(parts.parts, parts.by_step[position].tolist(), strict=True):
        about[f"pinchpoint.step.{part.id}_ns"] = ns
    phases = tuple(_phases(trace, found, position, begins))
    return Span(f"step {number}", begins + start, begins + end, about, phases)


def _phases(trace: Trace, found: Steps, position: int, begins: int) -> Iterator[Span]:
    """Outermost annotations of the step's host span, on its thread; the longest of them."""
    host = trace.host_ops
    if host is None or not len(host):
        return
    start, end = int(found.host_start_ns[position]), int(found.host_end_ns[position])
    noted = host["kind"] == HostKind.ANNOTATION
    lasting = host["duration_ns"]
    noted &= ~((host["start_ns"] <= start) & (host.end_ns >= end))  # the step's own marker
    noted &= (host["start_ns"] >= start) & (host.end_ns <= end)
    noted &= (host["thread"] == found.thread) & (lasting > SHORTEST_PHASE_RATIO * (end - start))
    outermost = noted & (above(parents(host), noted) == len(host))
    rows = np.flatnonzero(outermost)
    longest = np.sort(rows[np.argsort(-lasting[rows], kind="stable")][:MOST_PHASES])
    for row in longest.tolist():
        name = plain(trace.names[int(host["name"][row])])
        at = begins + int(host["start_ns"][row])
        yield Span(name, at, at + int(lasting[row]), {"pinchpoint.phase": "host"})


def _sent(span: Span, tracer: "Tracer") -> int:
    current = tracer.start_as_current_span(
        span.name, start_time=span.start_ns, attributes=dict(span.attributes), end_on_exit=False
    )
    with current as started:
        count = 1 + sum(_sent(child, tracer) for child in span.inside)
    started.end(end_time=span.end_ns)
    return count


def _listed(span: Span, trace_id: str, parent: str) -> Iterator[dict[str, Any]]:
    own = _id(span, 8, parent)
    yield {
        "traceId": trace_id,
        "spanId": own,
        "parentSpanId": parent,
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
    }
    for child in span.inside:
        yield from _listed(child, trace_id, own)


def _id(span: Span, length: int, parent: str = "") -> str:
    """So many bytes in hexadecimal digits, never all zero."""
    said = f"{parent} {span.name} {span.start_ns} {span.end_ns} {sorted(span.attributes.items())}"
    return sha256(said.encode("utf-8", "replace")).hexdigest()[: 2 * length]


def _attributes(about: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in about.items()]


def _value(value: str | int | float | bool) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # 64 bits, which JSON numbers do not hold
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}
