from contextlib import nullcontext
from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.trace import HostKind, RunFacts
from pinchpoint.trace.run_samples import SampledThread
from program import Program
from sampled_runs import samples

CONVERT = "torch/_dynamo/convert_frame.py(1371): __call__"


def compiling(name, *, every=1, kind=HostKind.PYTHON):
    """Steps of 2 ms of device work; each ``every``-th spends 30 ms in a call first."""
    p = Program()
    for i in p.steps(9):
        if i % every == 0:
            with p.frame("model.py(20): forward"):
                p.host(name, 30_000, kind=kind)
        p.kernel("triton_poi_fused_add_0", 2_000)
        p.sync()
    return p.trace()


@pytest.mark.parametrize(
    ("name", "kind"), [(CONVERT, HostKind.PYTHON), ("_compile.compile_inner", HostKind.COMPILE)]
)
def test_compilation_inside_the_steps(outcome, name, kind):
    (finding,) = outcome("recompiles", compiling(name, kind=kind)).findings
    assert finding.cost_ns_per_step == 30_000_000
    assert finding.location.function == "forward"


def test_threads_that_compile_at_the_same_time_take_that_time_once(outcome):
    p = Program()
    for _ in p.steps(9):
        began = p.at
        p.host(CONVERT, 30_000)
        p.at, p.thread = began, 1
        p.host(CONVERT, 20_000)
        p.at, p.thread = began + 30_000_000, 0
        p.kernel("triton_poi_fused_add_0", 2_000)
        p.sync()
    (finding,) = outcome("recompiles", p.trace()).findings
    assert finding.cost_ns_per_step == 30_000_000


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("compiler.py(292): backend_compile_and_load", HostKind.PYTHON),
        ("_compile.compile_inner (dynamo_timed)", HostKind.COMPILE),  # bare: no line around it
    ],
)
def test_where_it_compiles_is_told_by_the_looks_at_the_whole_run(outcome, name, kind):
    p = Program()
    bare = kind is HostKind.COMPILE  # then there are no frames, but an operator around it
    if bare:
        p.frame = nullcontext
    for _ in p.steps(3):
        with p.row("dynamo", kind=HostKind.OPERATOR) if bare else nullcontext():
            p.host(name, 30_000, kind=kind)
    looked = samples(every=0)
    looked = replace(
        looked,
        frames=("/env/site-packages/jax/_src/compiler.py(292): backend_compile", "g.py(72): main"),
        stacks=((0, 1),),
        threads=(SampledThread("MainThread", True, 500, None, ((0, 500),)),),
    )
    (finding,) = outcome("recompiles", replace(p.trace(), run=RunFacts(samples=looked))).findings
    assert "inside the steps in main (g.py:72)" in finding.summary


def test_a_graph_for_each_new_shape_costs_the_mean_step(gain):
    assert gain(compiling(CONVERT, every=2), "recompiles") == pytest.approx(15e6, rel=0.1)


@pytest.mark.parametrize(
    "trace",
    [
        compiling("Torch-Compiled Region: 0/0", kind=HostKind.ANNOTATION),
        compiling(CONVERT, every=100),
        compiling("<built-in method conv2d of type object at 0x7f>"),
    ],
    ids=["runs what is compiled", "only the first step", "a convolution's search"],
)
def test_other_slow_calls_are_no_compilation(outcome, trace):
    assert outcome("recompiles", trace).answer == "clear"


def test_what_a_call_launches_is_launched_without_compiling_too(predicted):
    p = Program()
    for _ in p.steps(6):
        with p.frame(CONVERT):
            p.busy(30_000)
            with p.row("triton_poi_fused_add_0"):
                p.kernel("triton_poi_fused_add_0", 10_000)
        p.sync()
    assert predicted(p.trace(), "recompiles") == pytest.approx(10e6, rel=0.05)


@pytest.mark.parametrize(
    ("functions", "found"),
    [(("iota", "sqrt", "step"), False), (("step", "iota", "step"), True)],
    ids=["each once, as a program starts", "one function anew"],
)
def test_of_a_recording_without_steps(outcome, functions, found):
    b = TraceBuilder(devices=())
    for number, (name, lasts_ms) in enumerate(zip(functions, (400, 30, 500), strict=True)):
        at = number * 1_000_000_000
        b.annotation(f"PjitFunction({name})", at, (lasts_ms + 10) * 1_000_000)
        b.python("compiler.py(292): backend_compile_and_load", at, lasts_ms * 1_000_000)
    trace = b.trace(api_calls=None, device_ops=None)
    assert steps(trace).how == "none"
    assert bool(outcome("recompiles", trace).findings) is found
