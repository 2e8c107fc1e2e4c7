from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.importers.xplane.host import linked
from pinchpoint.trace import ApiKind, Names
from program import Program

HOST_US, DEVICE_US = 500, 1_000


def timed_by_hand(*, inside=None, kernel_us=DEVICE_US):
    """A kernel, a wait for it (perhaps inside an operator), and host work; returns the waits."""
    p, waits = Program(), []
    for _ in p.steps(6):
        p.kernel("work", kernel_us)
        with p.row(inside) if inside else p.frame("torch/cuda/__init__.py(1): synchronize"):
            waits.append(p.sync("cudaDeviceSynchronize", ApiKind.SYNC_DEVICE))
        p.busy(HOST_US)
    return p.trace(), waits


def test_names_the_call_its_place_and_the_wait(outcome):
    trace, waits = timed_by_hand()
    (finding,) = outcome("explicit-synchronize", trace).findings
    assert "cudaDeviceSynchronize in step (train.py:40), 1 × a step" in finding.summary
    assert finding.location.line == 40
    assert finding.cost_ns_per_step == waits[-1]
    assert {e.what: e.value for e in finding.evidence}["longest wait"] == waits[-1]


def test_without_it_host_work_hides_behind_the_device(gain):
    trace, _ = timed_by_hand()
    assert gain(trace, "explicit-synchronize") == pytest.approx(HOST_US * 1e3, rel=0.1)


@pytest.mark.parametrize(
    ("call", "fix"), [("cudaEventSynchronize", "Remove"), ("np.asarray(jax.Array)", "a step later")]
)
def test_values_that_are_needed_are_read_later(outcome, call, fix):
    p = Program()
    for _ in p.steps(6):
        p.kernel("work", DEVICE_US)
        with p.frame("train.py(41): read"):
            p.sync(call, ApiKind.SYNC_EVENT)
        p.busy(HOST_US)
    (finding,) = outcome("explicit-synchronize", p.trace()).findings
    assert fix in finding.fix


def test_a_wait_inside_an_operator_was_not_asked_for(outcome):
    trace, _ = timed_by_hand(inside="aten::_cholesky_solve")
    assert outcome("explicit-synchronize", trace).answer == "clear"


def test_a_wait_for_a_device_that_is_done_costs_nothing(ranked):
    trace, _ = timed_by_hand(kernel_us=2)
    assert ranked(trace) == []


@pytest.mark.parametrize(("after", "answer"), [(0, "clear"), (1, "found")])
def test_the_wait_that_ends_a_recording_without_steps_is_the_profilers(outcome, after, answer):
    p = Program()
    for i in range(20):
        p.kernel(f"work {i}", 100 + i)
    p.sync("hipDeviceSynchronize", ApiKind.SYNC_DEVICE)
    for _ in range(after):
        p.kernel("more", 100)
    assert outcome("explicit-synchronize", p.trace()).answer == answer


@pytest.mark.parametrize(
    ("clock", "waits", "answer"),
    [("perf_counter", 1, "clear"), ("len", 1, "found"), ("perf_counter", 4, "found")],
    ids=["a step is timed", "nothing is timed", "phases are timed"],
)
def test_a_wait_that_ends_a_timed_step(outcome, clock, waits, answer):
    p = Program()
    for _ in p.steps(6):
        for _ in range(waits):
            p.host(f"<built-in function {clock}>", 1)
            p.busy(HOST_US)
            p.kernel("work", DEVICE_US)
            with p.frame("torch/cuda/__init__.py(1): synchronize"):
                p.sync("cudaDeviceSynchronize", ApiKind.SYNC_DEVICE)
        p.host(f"<built-in function {clock}>", 1)
    assert outcome("explicit-synchronize", p.trace()).answer == answer


DISPATCH, WORK, PYTHON = 200_000, 600_000, 100_000


def compiled_steps(*, silent_for):
    """Six steps of a compiled program: dispatched, then nothing of the host for a while."""
    b, at = TraceBuilder(), 0
    for number in range(6):
        b.step(number, at, DISPATCH + silent_for)
        b.annotation("PjitFunction(step)", at, DISPATCH)
        begun = max(at + DISPATCH, 200_000 + number * WORK)
        b.launch(at + DISPATCH - 5_000, 4_000, "fusion", begun, WORK)
        b.add("compiled_ops", start_ns=begun, duration_ns=WORK, op="fusion", device=0)
        at += DISPATCH + silent_for
    trace = b.trace()
    names = Names(trace.names)
    host, calls, ops = linked(trace.host_ops, trace.api_calls, trace.device_ops, names)
    return replace(trace, host_ops=host, api_calls=calls, device_ops=ops, names=names.freeze())


def test_of_compiled_programs_silence_until_the_device_is_done_is_a_wait(outcome, gain):
    trace = compiled_steps(silent_for=WORK + PYTHON)
    (finding,) = outcome("explicit-synchronize", trace).findings
    assert finding.summary.startswith("The host waits for the device")
    assert finding.cost_ns_per_step == pytest.approx(WORK + PYTHON, rel=0.01)
    # The device then works without a pause: 600 µs a step instead of 900.
    assert gain(trace, "explicit-synchronize") == pytest.approx(DISPATCH + PYTHON, rel=0.1)


@pytest.mark.parametrize("silent_for", [WORK + DISPATCH + WORK, WORK // 2, 20_000])
def test_a_silence_that_does_not_end_with_the_device_is_none(outcome, silent_for):
    assert outcome("explicit-synchronize", compiled_steps(silent_for=silent_for)).answer == "clear"
