from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import HostKind, MemoryKind, Names
from program import Program

CACHE_BYTES, COPY_US, WORK_US, CACHES = 64 << 20, 60, 400, 4


def decoding(*, size=CACHE_BYTES, us=COPY_US, every=1, source=MemoryKind.DEVICE, steps=6):
    """A replay that caches are copied in front of, and cloned after."""
    p = Program()
    for number in p.steps(steps):
        copied = CACHES if number % every == 0 else 0
        for _ in range(copied):
            p.copy(size, us, source, MemoryKind.DEVICE)
        p.kernel("attention", WORK_US)
        for _ in range(copied):
            with p.row("aten::clone"), p.row("aten::copy_"):
                p.copy(size, us, source, MemoryKind.DEVICE)
        p.sync()
    return p.trace()


def test_copies_in_and_out_move_values_and_compute_nothing(outcome):
    (finding,) = outcome("device-copies", decoding()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["copied within the device"] == 2 * CACHES * CACHE_BYTES
    assert evidence["copies of that size"] == 2 * CACHES
    assert finding.cost_ns_per_step == 2 * CACHES * COPY_US * 1_000
    assert finding.confidence == "medium"


def test_without_them_the_work_is_left(predicted):
    assert predicted(decoding(), "device-copies") == pytest.approx(WORK_US * 1_000, rel=0.1)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(decoding(size=4 << 10, us=2), id="small tensors"),
        pytest.param(decoding(source=MemoryKind.PINNED), id="from the host"),
        pytest.param(decoding(every=100, steps=40), id="one snapshot"),
    ],
)
def test_other_copies_are_healthy(outcome, trace):
    assert outcome("device-copies", trace).answer == "clear"


def test_has_nothing_to_judge(outcome):
    assert outcome("device-copies", TraceBuilder().trace()).answer == "not checked"


def storing(*, us=700, function="store"):
    """A compiled function copies a buffer whose size is not recorded, and writes a few rows."""
    p = Program()
    for _ in p.steps(6):
        with p.frame("agent.py(9): step"):
            with p.row(f"PjitFunction({function})", kind=HostKind.ANNOTATION):
                p.copy(None, us, MemoryKind.DEVICE, MemoryKind.DEVICE)
                p.kernel("loop_dynamic_update_slice_fusion", 20)
            with p.row("PjitFunction(learn)", kind=HostKind.ANNOTATION):
                p.kernel("gemm", WORK_US)
        p.sync()
    return p.trace()


def test_a_compiled_function_is_to_be_given_what_it_changes(outcome, predicted):
    (finding,) = outcome("device-copies", storing()).findings
    assert "for the compiled function store" in finding.summary
    assert finding.fix.startswith("Donate the arrays that store takes")
    assert finding.location.function == "step"
    assert predicted(storing(), "device-copies") == pytest.approx((WORK_US + 20) * 1_000, rel=0.1)
    assert outcome("device-copies", storing(us=5)).answer == "clear"


def test_small_copies_that_are_much_together_are_found(outcome):
    """Eight of 1 MiB, of 10 µs each, in a step of about 500 µs."""
    (finding,) = outcome("device-copies", decoding(size=1 << 20, us=10)).findings
    assert finding.cost_ns_per_step == 2 * CACHES * 10_000


def compiled(**told):
    """The same buffer, 256 MiB as the compiled program counts it; what it tells of the copy."""
    trace = storing()
    row = {"start_ns": 0, "duration_ns": 700_000, "op": "copy.1", "device": 0, "bytes": 512 << 20}
    b = TraceBuilder()
    ops = trace.device_ops
    copies = [i for i in range(len(ops)) if ops["duration_ns"][i] == 700_000]
    for i in copies:
        b.add("compiled_ops", **row | {"start_ns": int(ops["start_ns"][i])} | told)
    b.names = Names(trace.names)
    rows = b.trace()
    return replace(trace, compiled_ops=rows.compiled_ops, names=rows.names)


@pytest.mark.parametrize(
    ("told", "words", "fix"),
    [
        ({"argument": "buffer['obs']", "donated": False}, "keep its argument", "Donate buffer to"),
        ({"argument": "buffer['obs']", "donated": True}, "was given to be changed", "Read what is"),
        ({"loop": "agent.py:30"}, "the loop at agent.py:30 copies", "In the loop at agent.py:30"),
    ],
    ids=["kept", "donated", "carried"],
)
def test_why_a_compiled_program_copies(outcome, told, words, fix):
    (finding,) = outcome("device-copies", compiled(**told)).findings
    assert words in finding.summary
    assert "0.268 GB" in finding.summary
    assert finding.fix.startswith(fix)
