"""Executions of XLA programs that get and give back each buffer at the driver."""

import pytest

from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.trace import HostKind
from pinchpoint.trace.trace import RunFacts
from program import US, Program

BUILD = "Build buffer allocations"


def executing(*, build_us=5_000.0, free_us=0.0, slow_steps=4, marked=False, **facts):
    """Each step executes a program of 1 ms twice: get buffers, launch, give them back."""
    p = Program()
    spans = {"kind": HostKind.ANNOTATION}
    for number in p.steps(4):
        for _ in range(2):
            with p.row("[0] PjRtStreamExecutorRawLoadedExecutable::Execute", **spans):
                p.host(BUILD, build_us if number < slow_steps else 100.0, **spans)
                if marked:
                    p.builder.add("allocations", time_ns=p.at, bytes=4096, thread=0)
                with p.row("[0] GpuExecutable::ExecuteThunks", **spans):
                    p.kernel("fusion", 1_000)
                p.busy(free_us)
    return p.trace(**facts)


def test_buffers_that_the_driver_gives_and_takes(outcome, predicted):
    trace = executing(free_us=3_000)
    (finding,) = outcome("driver-allocations", trace).findings
    assert finding.summary.startswith("XLA gets the buffers of 2 executions a step from the driver")
    assert finding.cost_ns_per_step == pytest.approx(2 * 8_000 * US, rel=0.01)
    assert finding.confidence == "medium"
    assert "this recording does not hold it" in finding.fix
    assert predicted(trace, "driver-allocations") == pytest.approx(2e6, rel=0.1)


def test_the_variable_that_says_so(outcome):
    facts = RunFacts(variables={"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"})
    (finding,) = outcome("driver-allocations", executing(run=facts)).findings
    assert "(XLA_PYTHON_CLIENT_ALLOCATOR=platform)" in finding.summary
    assert finding.confidence == "high"


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"marked": True}, id="an allocator with a cache gave them"),
        pytest.param({"build_us": 400.0}, id="as long as a cache takes"),
        pytest.param({"slow_steps": 1}, id="a pool that grows in the first step"),
    ],
)
def test_what_is_no_driver(outcome, changed):
    facts = RunFacts(variables={"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"})
    assert outcome("driver-allocations", executing(run=facts, **changed)).answer == "clear"


@pytest.mark.parametrize(
    ("build_us", "kind"), [(5_000.0, GapKind.MALLOC), (300.0, GapKind.DISPATCH)]
)
def test_the_runtime_runs_no_python(build_us, kind):
    trace = executing(build_us=build_us)
    names = [trace.names[name] for name in trace.host_ops["name"]]
    does = activity(trace)
    kinds = {name: GapKind(does[row]) for row, name in enumerate(names)}
    assert kinds[BUILD] == kind
    assert kinds["[0] PjRtStreamExecutorRawLoadedExecutable::Execute"] == GapKind.DISPATCH
    assert kinds["train.py(40): step"] == GapKind.PYTHON
