from builders import TraceBuilder
from pinchpoint.diagnosis.evidence.host_spans import host_spans, named

MS = 1_000_000
COMPILES = "jax/_src/pxla.py(1209): compile"


def test_what_had_begun_before_the_only_window_counts_inside_of_it():
    """No steps are known: the recording is one, from its first operator on. A compilation of 8 ms
    began 2 ms before that and is in it for 6."""
    builder = TraceBuilder()
    builder.devices = []
    builder.python(COMPILES, 0, 8 * MS)
    builder.op("aten::add", 2 * MS, MS, thread=1)
    builder.op("aten::add", 9 * MS, 3 * MS)
    builder.python(COMPILES, 13 * MS, 4 * MS)
    builder.op("aten::add", 19 * MS, 1 * MS)
    trace = builder.trace()
    spans = host_spans(trace, named(trace, COMPILES.__eq__), "compiling")
    assert len(spans.rows) == 2
    assert spans.ns_per_step == (6 + 4) * MS
