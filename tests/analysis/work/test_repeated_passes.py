from builders import TraceBuilder
from pinchpoint.analysis.work.passes import repeated_passes
from pinchpoint.trace import HostKind
from program import Program

ONE, TWO, OTHER = ("aten::linear", [[1, 8], [8, 8]]), ("aten::relu", [[1, 8]]), ("aten::add", [[3]])
LONGER = ("aten::linear", [[1, 16], [16, 8]])


def steps_of(*steps):
    """A step for each list of operators, after a first one that is not judged."""
    p = Program()
    rows = iter([steps[0], *steps])
    for _ in p.steps(len(steps) + 1):
        for name, shapes in next(rows):
            with p.row(name, shapes=shapes):
                p.host("aten::inner", 5, kind=HostKind.OPERATOR)
        p.kernel("work", 1)
    return p.trace()


def test_a_sequence_several_times_over():
    trace = steps_of([ONE, TWO] * 3, [ONE, TWO] * 3)
    found = repeated_passes(trace)
    assert found.repeats == 3
    names = [trace.text(trace.host_ops, "name", r) for r in found.later_rows]
    assert names == ["aten::linear", "aten::relu"] * 4  # two passes of two steps
    assert trace.text(trace.host_ops, "name", found.first_row) == "aten::linear"


def test_launches_of_the_same_operator_do_the_same_work():
    p = Program()
    for _ in p.steps(3):
        for _ in range(2):
            for name, shapes in (ONE, TWO):
                with p.row(name, shapes=shapes):
                    p.kernel(f"{name} first", 1)
                    p.kernel(f"{name} second", 1)
    trace = p.trace()
    launched, number = repeated_passes(trace).same_work(trace)
    names = [trace.text(trace.device_ops, "name", row) for row in launched]
    steps = len(launched) // 8
    assert len(set(number.tolist())) == 4 * steps  # of each step: two operators, two launches
    for one in range(4 * steps):
        assert len({names[i] for i in range(len(names)) if number[i] == one}) == 1
        assert (number == one).sum() == 2


def test_other_sequences_are_no_passes():
    assert repeated_passes(steps_of([ONE, TWO])) is None
    assert repeated_passes(steps_of([ONE, TWO, ONE, OTHER])) is None
    assert repeated_passes(steps_of([ONE, TWO, LONGER, TWO])) is None


def test_steps_that_differ_in_their_number_are_not_alike():
    assert repeated_passes(steps_of([ONE, TWO] * 3, [ONE, TWO] * 4)) is None


def test_without_shapes_a_pass_cannot_be_told():
    p = Program()
    for _ in p.steps(3):
        p.host("aten::linear", 5, kind=HostKind.OPERATOR)
    assert repeated_passes(p.trace()) is None
    assert repeated_passes(TraceBuilder().trace()) is None
