from dataclasses import replace

import pytest

from pinchpoint.trace import HostKind, RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork
from program import Program

DATA, WEIGHT = [512, 1024], [1024, 1024]
ROUNDS = 8
JUDGED = 5  # of 6 steps


def refining(*, rounds=ROUNDS, casts=1, modules=1, data=DATA, backward_between=False, named=True):
    """Each step of a training runs the same modules ``rounds`` times; each call casts the weight
    anew."""
    p = Program()
    for _ in p.steps(6):
        for _ in range(rounds):
            for module in range(modules):
                with p.row(
                    f"nn.Module: Linear_{module}",
                    kind=HostKind.MODULE if named else HostKind.PYTHON,
                ):
                    for _ in range(casts):
                        _linear(p, data)
            if backward_between:
                with p.row("autograd::engine::evaluate_function: ToCopyBackward0"):
                    _cast(p, WEIGHT, "float", "c10::BFloat16")
        with p.row("autograd::engine::evaluate_function: MmBackward0"):
            p.kernel("gemm", 20)
        with p.row("autograd::engine::evaluate_function: ToCopyBackward0"):
            _cast(p, WEIGHT, "float", "c10::BFloat16")
    return p.trace()


def _linear(p, data):
    with p.row("aten::linear", shapes=[data, WEIGHT, []], dtypes=["float", "float", ""]):
        _cast(p, WEIGHT, "c10::BFloat16", "float")
        with p.row("aten::mm", shapes=[data, WEIGHT], dtypes=["c10::BFloat16"] * 2):
            p.kernel("gemm", 20)


def _cast(p, shape, target, source):
    with p.row("aten::copy_", shapes=[shape, shape, []], dtypes=[target, source, "Scalar"]):
        p.kernel("elementwise", 30)


def test_all_casts_but_the_first_of_each_weight_go(outcome, ranked):
    trace = refining(modules=2)
    (finding,) = outcome("weights-cast-again", trace).findings
    assert finding.cost_ns_per_step == 2 * (ROUNDS - 1) * 30_000
    assert f"{ROUNDS} times a pass" in finding.summary
    back = 1
    assert len(finding.changes[0].device_ops) == JUDGED * (2 * (ROUNDS - 1) + back)
    assert "weights-cast-again" in ranked(trace)


def test_casts_back_of_gradients_go_with_them(outcome):
    p = Program()
    for _ in p.steps(6):
        for _ in range(ROUNDS):
            with p.row("nn.Module: Linear_0", kind=HostKind.MODULE):
                _linear(p, DATA)
        for _ in range(ROUNDS):
            with p.row("autograd::engine::evaluate_function: ToCopyBackward0"):
                _cast(p, WEIGHT, "float", "c10::BFloat16")
                with p.row("aten::add_", shapes=[WEIGHT, WEIGHT, []], dtypes=["float"] * 2):
                    p.kernel("elementwise", 30)
    (finding,) = outcome("weights-cast-again", p.trace()).findings
    gone, calls, added = finding.changes
    assert len(gone.device_ops) == JUDGED * 2 * (ROUNDS - 1)
    assert (len(calls.host_ops), calls.factor) == (len(gone.device_ops), 0.0)
    assert (len(added.device_ops), added.factor) == (JUDGED * ROUNDS, 0.5)


@pytest.mark.parametrize(
    "trace",
    [
        refining(rounds=1),
        refining(rounds=1, casts=3),
        refining(rounds=1, modules=8),
        refining(data=WEIGHT),
        refining(backward_between=True),
    ],
    ids=["once", "several weights of a module", "many modules", "maybe data", "micro-batches"],
)
def test_first_casts_are_no_finding(outcome, trace):
    assert outcome("weights-cast-again", trace).answer == "clear"


def test_cannot_judge_without_modules(outcome):
    assert outcome("weights-cast-again", refining(named=False)).answer == "not checked"


def serving(
    *,
    steps=6,
    casts=True,
    gradient=False,
    cast_back=(),
    data=DATA,
    target="c10::BFloat16",
    notes=None,
):
    """Each step calls one layer of weights in float32, and computes no gradient of it."""
    p = Program()
    for _ in p.steps(steps):
        with p.row("aten::linear", shapes=[data, WEIGHT, []], dtypes=["float", "float", ""]):
            if casts:
                with p.row("aten::_to_copy", shapes=[WEIGHT], dtypes=["float"]):
                    _cast(p, WEIGHT, target, "float")
            with p.row("aten::mm", shapes=[data, WEIGHT], dtypes=[target] * 2):
                p.kernel("gemm", 20)
        if gradient:
            with p.row("autograd::engine::evaluate_function: MmBackward0"):
                p.kernel("gemm", 20)
        for shape in cast_back:
            with p.row("autograd::engine::evaluate_function: ToCopyBackward0"):
                _cast(p, shape, "float", target)
    trace = p.trace()
    if notes is None:
        return trace
    computed = ("aten::_to_copy", "aten::mm")
    values = RunValues(30, 1, True, (), (), 0, work=notes, operators=computed)
    return replace(trace, run=RunFacts(values=values))


def note(ratio=1.0, shape=tuple(WEIGHT)):
    operations = (VainOperations("aten::_to_copy", (shape,), 1, ((0, 0),)),)
    return VainWork("step", (("serve.py", 5, "run"),), operations, False, 1, 1, 1 << 21, ratio)


@pytest.mark.parametrize(
    ("trace", "confidence"),
    [
        (serving(), "medium"),
        (serving(gradient=True, cast_back=([1024, 16],)), "medium"),
        (serving(notes=(note(),)), "high"),
        (serving(notes=(note(),), gradient=True), "high"),
    ],
    ids=[
        "no gradients",
        "gradients of adapters alone",
        "values seen",
        "frozen weights of a training",
    ],
)
def test_weights_that_stay_are_cast_once(outcome, ranked, trace, confidence):
    (finding,) = outcome("weights-cast-again", trace).findings
    assert (finding.cost_ns_per_step, finding.confidence) == (30_000, confidence)
    device, host = finding.changes
    assert len(device.device_ops) == len(host.host_ops) == JUDGED
    assert "torch.bfloat16" in finding.hint
    assert ranked(trace) == ["weights-cast-again"]  # once: repeated-work takes no parts


def test_names_the_type_of_the_products(outcome):
    (finding,) = outcome("weights-cast-again", serving(target="c10::Half")).findings
    assert "torch.float16" in finding.hint


@pytest.mark.parametrize(
    "trace",
    [
        serving(gradient=True, cast_back=(WEIGHT,)),
        serving(casts=False),
        serving(steps=2),
        serving(data=WEIGHT),
        serving(notes=()),
        serving(notes=(note(0.5),)),
        serving(notes=(note(shape=(512, 1024)),)),
    ],
    ids=[
        "gradients change weights",
        "no casts",
        "one step that is judged",
        "maybe data",
        "values differ",
        "values differ now and then",
        "other work",
    ],
)
def test_weights_that_may_change_are_none(outcome, trace):
    assert not outcome("weights-cast-again", trace).findings
