import pytest

from builders import TraceBuilder
from program import Program

US = 1_000
CAPACITY = 85_017_493_504


def training(*, again=True, peak_ratio=0.2, memory=True, steps=4):
    """Each step: a forward layer; in backward the same layer again, perhaps, and its gradient."""
    b = TraceBuilder()
    engine, period, runs_at = b.thread("autograd"), 1_000 * US, 5 * US
    for i in range(steps):
        at = i * period
        b.step(i, at, period)
        work = [("aten::linear", 0, 0, 300)]
        node = at + 200 * US
        b.op("autograd::engine::evaluate_function: AddmmBackward0", node, 300 * US, thread=engine)
        if again:
            work.append(("aten::linear", engine, 210 * US, 300))
        work.append(("aten::mm", engine, 300 * US, 300))
        for n, (name, thread, offset, takes) in enumerate(work):
            begin = at + offset
            sequence = i if name == "aten::linear" else None
            b.op(name, begin, 20 * US, thread=thread, sequence=sequence)
            runs_at = max(runs_at, begin + 8 * US)
            b.launch(begin + US, 5 * US, f"gemm{n}", runs_at, takes * US, thread=thread)
            runs_at += takes * US
        if memory:
            b.add(
                "allocations",
                time_ns=at,
                bytes=512,
                device=0,
                allocated_bytes=round(peak_ratio * CAPACITY / 2),
                reserved_bytes=round(peak_ratio * CAPACITY),
                thread=0,
            )
    return b.trace()


def test_drops_the_second_forward_pass(outcome):
    (finding,) = outcome("recompute-overhead", training()).findings
    assert finding.cost_ns_per_step == 300 * US
    assert finding.evidence[-1].value == pytest.approx(0.2)


def test_is_a_finding(ranked):
    assert ranked(training())[0] == "recompute-overhead"


def test_is_right_where_memory_is_short(outcome):
    assert outcome("recompute-overhead", training(peak_ratio=0.8)).answer == "clear"


def test_cannot_judge_without_memory(outcome):
    answer = outcome("recompute-overhead", training(memory=False))
    assert answer.answer == "not checked"
    assert "profile_memory" in answer.record


def test_has_nothing_to_say_where_nothing_runs_again(outcome):
    assert outcome("recompute-overhead", training(again=False, memory=False)).answer == "clear"
    assert outcome("recompute-overhead", TraceBuilder().trace()).answer == "not checked"


def shaped(rows, *, steps=4):
    """A layer whose inputs are recorded, done again in backward; memory is not recorded."""
    p = Program()
    engine = p.builder.thread("autograd")
    shapes = [[rows, 1024], [1024, 1024]]
    given = {"shapes": shapes, "dtypes": ["float"] * 2}
    for i in p.steps(steps):
        with p.row("aten::mm", sequence=i, **given):
            p.kernel("gemm", 300)
        p.thread = engine
        with p.row("autograd::engine::evaluate_function: MmBackward0"):
            with p.row("aten::mm", sequence=i, **given):
                p.kernel("gemm", 300)
            with p.row("aten::t"):
                p.kernel("gradient", 300)
        p.thread = 0
        p.sync()
    return p.trace()


def test_shapes_bound_what_keeping_takes(outcome):
    (finding,) = outcome("recompute-overhead", shaped(1 << 20)).findings
    read = ((1 << 20) + 1024) * 1024 * 4
    assert finding.evidence[-1].value == pytest.approx(read / CAPACITY, abs=0.001)


def test_is_not_checked_where_the_bound_does_not_fit(outcome):
    assert outcome("recompute-overhead", shaped(1 << 24)).answer == "not checked"


def test_a_pass_that_is_differentiated_is_no_recomputation(outcome):
    """``create_graph=True``: all that a node runs is numbered, its own operators too."""
    p = Program()
    engine = p.builder.thread("autograd")
    given = {"shapes": [[1 << 20, 1024], [1024, 1024]], "dtypes": ["float"] * 2}
    for i in p.steps(4):
        with p.row("aten::mm", sequence=i, **given):
            p.kernel("gemm", 300)
        p.thread = engine
        with p.row("autograd::engine::evaluate_function: MmBackward0"), p.row("MmBackward0"):
            with p.row("aten::mm", sequence=100 + i, **given):
                p.kernel("gemm", 300)
            with p.row("aten::leaky_relu_backward", sequence=200 + i), p.row("aten::empty"):
                p.kernel("gradient", 300)
        p.thread = 0
        p.sync()
    assert outcome("recompute-overhead", p.trace()).answer == "clear"


def test_a_checkpoint_with_a_backward_pass_of_its_own_is(outcome):
    """Reentrant: all that the node runs itself is numbered, and its nodes run inside it."""
    p = Program()
    engine = p.builder.thread("autograd")
    given = {"shapes": [[1 << 20, 1024], [1024, 1024]], "dtypes": ["float"] * 2}
    node = "autograd::engine::evaluate_function: "
    for i in p.steps(4):
        with p.row("aten::mm", sequence=i, **given):
            p.kernel("gemm", 300)
        p.thread = engine
        with p.row(node + "CheckpointFunctionBackward"), p.row("CheckpointFunctionBackward"):
            with p.row("aten::mm", sequence=100 + i, **given):
                p.kernel("gemm", 300)
            with p.row(node + "MmBackward0"), p.row("MmBackward0"), p.row("aten::mm"):
                p.kernel("gradient", 300)
        p.thread = 0
        p.sync()
    (finding,) = outcome("recompute-overhead", p.trace()).findings
    assert finding.cost_ns_per_step == 300_000
