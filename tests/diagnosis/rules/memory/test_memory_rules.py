"""The rules about memory: each fires on its cause, and none on a healthy program."""

import pytest

from analysis.memory import recordings
from analysis.memory.programs import MAIN, MIB, NN, Program, forward, user
from analysis.memory.training import ACTIVATION, PARAMETERS, Training
from diagnosis.rules.memory.memory_answers import answers
from pinchpoint.report.assemble.findings import findings

GIB = 1 << 30


@pytest.mark.parametrize(
    "name",
    [
        "healthy_train",
        "healthy_train_cpp",
        "ckpt_train",
        "sgd_train",
        "expandable_train",
        "ring_truncated",
        "eval_nograd",
        "cudagraph_pool",
    ],
)
def test_healthy_recordings_have_no_finding(name):
    assert answers(recordings.recording(name)) == {}


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("leak_graph", "graph-retained"),
        ("leak_outputs", "eval-outputs-kept"),
        ("fragmentation", "memory-fragmentation"),
        ("oom", "activation-memory"),
    ],
)
def test_the_planted_cause_is_the_first_finding(name, first):
    assert findings(recordings.recording(name)).findings[0].id == first


def test_the_failed_request_is_explained():
    found = answers(recordings.recording("oom"))["activation-memory"]
    assert "80 % of 1.87 GiB are activations" in found.summary
    assert "2.00 × what the last step that fitted did" in found.consequence
    assert "smallest change that fits: checkpoint the 6 layers" in found.consequence


def test_a_healthy_program():
    p = Program()
    t = Training(p)
    for number in range(5):
        t.step(number)
    assert answers(p.trace()) == {}


def _layered(p: Program, line: int, *, graph: bool) -> list[int]:
    """A pass through twelve modules; without a graph each frees the one before."""
    kept: list[int] = []
    for number in range(12):
        kept.append(p.alloc(ACTIVATION, forward(20 + number % 3, caller=line)))
        if not graph and number:
            p.drop(kept.pop(0), forward(20 + number % 3, caller=line))
    return kept


def test_evaluation_that_records_a_graph():
    p = Program()
    Training(p)
    result: list[int] = []
    for number in range(3):
        with p.step(number):
            batch = p.alloc(MIB, user(39))
            new = _layered(p, 50, graph=True)
            for address in result:
                p.drop(address, user(50))  # the name is bound anew after the next pass
            p.drop(batch, user(51))
            result = new
    found = answers(p.trace())
    assert list(found) == ["eval-with-grad"]
    assert found["eval-with-grad"].location.line == 50
    assert found["eval-with-grad"].saving_bytes >= 2 * 10 * ACTIVATION


@pytest.mark.parametrize(("graph", "found"), [(True, ["eval-with-grad"]), (False, [])])
def test_evaluation_of_one_batch_again_and_again_without_marks(graph, found):
    p = Program()
    Training(p)
    result: list[int] = []
    for _ in range(4):
        new = _layered(p, 50, graph=graph)
        for address in result:
            p.drop(address, user(50))
        result = new
    assert list(answers(p.trace())) == found


def test_a_forward_pass_whose_backward_pass_may_still_come():
    p = Program()
    Training(p)
    _layered(p, 50, graph=True)
    assert answers(p.trace()) == {}


def test_evaluation_without_a_graph():
    p = Program()
    Training(p)
    result: list[int] = []
    for number in range(3):
        with p.step(number):
            batch = p.alloc(MIB, user(39))
            new = _layered(p, 50, graph=False)
            for address in result:
                p.drop(address, user(50))
            p.drop(batch, user(51))
            result = new
    assert answers(p.trace()) == {}


def test_gradients_that_stay_through_the_forward_pass():
    p = Program()
    t = Training(p, set_to_none=False)
    for number in range(3):
        t.step(number, logits=8 * MIB)
    found = answers(p.trace())
    assert list(found) == ["gradients-kept"]
    assert found["gradients-kept"].saving_bytes == sum(PARAMETERS)


def test_gradients_that_are_a_small_part_of_the_peak_are_seen(outcome):
    p = Program()
    t = Training(p, set_to_none=False)
    for number in range(3):
        t.step(number, logits=512 * MIB)
    trace = p.trace()
    said = outcome("gradients-kept", trace)
    assert said.answer == "smaller"
    assert said.why.startswith("smaller than 3 % of the peak: ")
    assert [(one.id, one.why) for one in findings(trace).not_shown] == [(said.id, said.why)]


def test_a_leak_of_a_few_bytes_is_said_to_be_negligible():
    p = Program()
    t = Training(p)
    for number in range(5):
        t.step(number)
        p.alloc(4, user(60))
    trace = p.trace()
    assert answers(trace) == {}
    said = findings(trace)
    assert [(f.id, f.severity) for f in said.findings] == [("memory-leak", "negligible")]
    assert "memory-leak" not in said.clear


def test_a_request_that_fails_for_fragmentation():
    p = Program(segment_bytes=GIB)
    parts = [p.alloc(48 * MIB, user(70)) for _ in range(21)]
    for part in parts[1::2]:
        p.drop(part, user(71))
    p.oom(128 * MIB, free=0)
    found = answers(p.trace())
    assert list(found) == ["memory-fragmentation"]
    assert found["memory-fragmentation"].summary == (
        "A request of 128 MiB failed with 496 MiB free in pieces of at most 48.0 MiB"
    )
    assert "expandable_segments" in found["memory-fragmentation"].hint


def test_expandable_segments_are_not_advised_where_they_are_on():
    p = Program(segment_bytes=GIB)
    p.settings = {"expandable_segments": True}
    parts = [p.alloc(48 * MIB, user(70)) for _ in range(21)]
    for part in parts[1::2]:
        p.drop(part, user(71))
    p.oom(128 * MIB, free=0)
    assert answers(p.trace())["memory-fragmentation"].hint is None


def test_a_request_that_fails_for_need_is_no_fragmentation():
    p = Program(segment_bytes=GIB)
    p.alloc(900 * MIB, user(70))
    p.oom(500 * MIB, free=10 * MIB)
    assert answers(p.trace()) == {}


@pytest.mark.parametrize(("memory_bytes", "short"), [(GIB, True), (80 * GIB, False), (None, False)])
def test_activations_matter_only_where_memory_is_short(memory_bytes, short):
    p = Program(segment_bytes=GIB)
    t = Training(p)
    for number in range(3):
        with p.step(number):
            kept = [p.alloc(60 * MIB, forward(20 + i, caller=40)) for i in range(9)]
            t.backward(kept)
            t.optimizer()
    assert ("activation-memory" in answers(p.trace(memory_bytes=memory_bytes))) == short


def test_state_that_is_more_than_half_of_everything():
    p = Program()
    stack = [(NN.replace("nn/modules", "optim") + "adam.py", 178, "_init_group"), *MAIN]
    t = Training(p)
    t.step(0)
    p.alloc(90 * MIB, stack)
    t.step(1)
    t.step(2)
    assert "optimizer-state-memory" in answers(p.trace())


def test_logits_that_are_most_of_the_peak():
    p = Program()
    t = Training(p)
    for number in range(3):
        t.step(number, logits=200 * MIB)
    found = answers(p.trace())
    assert list(found) == ["logits-materialised"]
    assert found["logits-materialised"].evidence[1].value == 200 * MIB
