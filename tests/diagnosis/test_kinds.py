"""Kinds of steps that have causes of their own."""

from dataclasses import replace

import pytest

from pinchpoint.analysis.mean.step_kinds import step_kinds
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.diagnosis import engine
from pinchpoint.diagnosis.kinds import diagnose, diagnosed_kinds
from pinchpoint.report.assemble.report import diagnose as report_of
from pinchpoint.report.words.mean import mean_sentences
from pinchpoint.trace import HostKind, Source
from program import LAUNCH_US, Program

MS = 1e6


def accumulating(*, steps=17, every=8):
    """Micro-steps of 10 ms that the device bounds; each 8th also has 1,000 launches of an
    optimizer, 30 us of the host each, for 3 us of the device: 40 ms. What recorded it is not known,
    so that no cost of recording is taken out."""
    p = Program()
    for number in p.steps(steps):
        with p.row("aten::mm"):
            p.kernel("gemm", 5_000)
        with p.row("autograd::engine::evaluate_function: MmBackward0"):
            p.kernel("gemm", 5_000)
        if number and number % every == 0:
            p.sync()
            with p.row("Optimizer.step#AdamW.step", kind=HostKind.ANNOTATION):
                for _ in range(1_000):
                    with p.row("aten::addcdiv_"):
                        p.kernel("elementwise", 3)
                        p.busy(30 - LAUNCH_US)
        p.sync()
    return p.trace(source=Source(path="", format="kineto"))


def evaluating():
    """Training steps of 10 ms; each third only goes forward, and reads 400 numbers one by one."""
    p = Program()
    for number in p.steps(13):
        if number % 3:
            with p.row("aten::mm"):
                p.kernel("gemm", 5_000)
            with p.row("autograd::engine::evaluate_function: MmBackward0"):
                p.kernel("gemm", 5_000)
            p.sync()
            continue
        with p.frame("evaluate.py(7): score"):
            for _ in range(400):
                with p.row("aten::mm"):
                    p.kernel("gemm", 20)
                    p.busy(10)
                p.read()
    return p.trace()


def test_the_rare_steps_with_an_optimizer_are_a_kind_with_its_own_cause():
    dear, cheap = sorted(diagnosed_kinds(accumulating()), key=lambda of: -of.base_ns)
    assert (len(dear.kind.steps), len(cheap.kind.steps)) == (2, 14)
    assert dear.base_ns == pytest.approx(40 * MS, rel=0.05)
    assert cheap.base_ns == pytest.approx(10 * MS, rel=0.01)
    first = dear.diagnosis.found[0]
    assert first.id == "unfused-optimizer"
    # What stays are the products; fused, the optimizer's 3 ms may be shorter, not longer.
    assert 10 * MS < first.predicted.step_ns < 13.5 * MS
    assert (cheap.diagnosis.found, cheap.bound_by.value) == ((), "device")


def test_the_cause_of_one_kind_is_one_of_the_mean_step():
    found = diagnose(accumulating()).found
    (one,) = [r for r in found if r.id == "unfused-optimizer"]
    # 2 of 16 steps become 27 to 30 ms shorter; the mean step is (14 x 10 + 2 x 40) / 16.
    assert 2 / 16 * 26 * MS < one.saving_ns < 2 / 16 * 30 * MS
    assert one.predicted.base_ns == pytest.approx((14 * 10 + 2 * 40) / 16 * MS, rel=0.05)
    assert one.finding.summary.startswith("In the steps of 40.2 ms with an optimizer step: the op")


def reading():
    """Steps of 400 and of 600 numbers read one by one in turn, between training steps of 10 ms,
    so that in the mean step nothing is found."""
    p = Program()
    for number in p.steps(19):
        with p.frame("evaluate.py(7): score"):
            for _ in range((0, 400, 600)[number % 3]):
                with p.row("aten::mm"):
                    p.kernel("gemm", 20)
                    p.busy(10)
                p.read()
        if number % 3 == 0:
            with p.row("aten::mm"):
                p.kernel("gemm", 10_000)
            p.sync()
    return p.trace()


def test_one_cause_in_several_kinds_is_one_finding_with_the_gain_of_all(monkeypatch):
    trace = reading()
    of = diagnosed_kinds(trace)
    gains = [
        kind.ratio * (one.predicted.base_ns - sum(one.predicted.range_ns) / 2)
        for kind in of
        for one in kind.diagnosis.found
        if one.id == "sync-in-loop"
    ]
    assert len(gains) == 2
    recorded_ns = sum(kind.ratio * kind.base_ns for kind in of) / sum(kind.ratio for kind in of)
    share = min(step_base_ns(trace) / recorded_ns, 1.0)  # the long kind came more often there
    empty = replace(engine.diagnose(trace), found=(), outcomes=())
    monkeypatch.setattr(engine, "diagnose", lambda _: empty)
    (one,) = [r for r in diagnose(trace).found if r.id == "sync-in-loop"]
    assert one.saving_ns == pytest.approx(share * sum(gains), rel=0.05)
    assert " and " in one.finding.summary.split(":")[0]


def generating(lengths, *, name="aten::embedding"):
    """Steps that look these numbers of tokens up: 1 ms each of the device."""
    p = Program()
    for number in p.steps(len(lengths)):
        tokens = lengths[number]
        with p.row(name, shapes=[[32_000, 64], [1, tokens]][:: 1 if "emb" in name else -1]):
            p.kernel("gather", 1_000 * tokens)
        p.sync()
    return p.trace()


@pytest.mark.parametrize(
    ("trace", "labels"),
    [
        (generating([8] + [1] * 11 + [8] + [1] * 11 + [8] + [1] * 11), {"prefill", "decode"}),
        (generating([8, 2] * 6, name="aten::linear"), {"inputs of 1×8", "inputs of 1×2"}),
    ],
    ids=["prompts", "lengths"],
)
def test_kinds_are_told_by_what_goes_in(trace, labels):
    assert {kind.label for kind in step_kinds(trace).kinds} == labels


def test_steps_of_one_kind_have_no_causes_apart():
    assert diagnosed_kinds(accumulating(every=100)) == ()


def test_the_document_and_the_page_say_each_kind_with_its_causes():
    report = report_of(evaluating())
    by_label = {kind.label: kind for kind in report.steps.kinds}
    forward, training = by_label["without a backward pass"], by_label["with a backward pass"]
    assert [f.id for f in training.findings] == []
    (cause, *_) = forward.findings
    assert cause.id == "sync-in-loop"
    assert cause.predicted_step_ns < forward.base_ns
    said = [line for line in mean_sentences(report) if "without a backward pass), as rec" in line]
    assert (
        f"Causes there: sync-in-loop ({1 - cause.predicted_step_ns / forward.base_ns:.0%}".replace(
            "%", " %"
        )
        in said[0]
    )
