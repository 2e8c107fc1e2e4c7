"""Operations that several ranks compute alike, found again in a recording of one of them."""

import json
from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import DeviceKind, HostKind, RunFacts
from pinchpoint.trace.run_values import RunValues, VainOperations, VainWork

MS = 1_000_000
PLACE = ("train.py", 12, "loss_on_logits")
NAMES = ("aten::mm", "aten::_log_softmax")


def computing(kind="ranks", *, ranks=2, shared=0.5, on_device=True, large=0, reduced=0, twice=0):
    """Steps of 10 ms: 4 of them for a softmax inside of a loss, whose result is of ``large`` bytes.

    ``reduced``: bytes of an all-reduce of 500 us in each step. ``twice``: the softmax in two calls
    of 2 ms, 1 after each other, 2 with a sum between them that is not the same on all ranks.
    """
    b = TraceBuilder()
    if not on_device:
        b.devices = []
    for step in range(6):
        at = step * 10 * MS
        b.step(step, at, 10 * MS)
        whole = ((NAMES[1], 6 * MS, 4 * MS),)
        halves = ((NAMES[1], 6 * MS, 2 * MS), (NAMES[1], 8 * MS, 2 * MS))
        for name, start, takes in ((NAMES[0], 0, 5 * MS), *(halves if twice else whole)):
            begins = at + (start // 6 if on_device else start)
            b.op(name, begins, (takes // 6 if on_device else takes) - 2_000, shapes="[[64, 16]]")
            if on_device:
                b.launch(begins + 1_000, 100_000, name[6:], at + start, takes - 1_000)
        if twice == 2:
            b.op("aten::sum", at + (8 * MS - 2_000) // (6 if on_device else 1), 1_000)
        if reduced:
            _reduce(b, at + 5 * MS, reduced, on_device=on_device)
    calls = 2 if twice else 1
    which = ((0, calls - 1),)
    operations = (VainOperations(NAMES[1], ((64, 16),), calls, which, bytes_each=large),)
    note = VainWork(kind, (PLACE,), operations, False, 1, ranks, None, 1.0, shared_ratio=shared)
    values = RunValues(30, 1, True, (), (), 0, work=(note,), operators=(*NAMES, "aten::sum"))
    return replace(b.trace(), run=RunFacts(values=values))


def _reduce(b, at, size, *, on_device):
    if not on_device:
        b.op("c10d::allreduce_", at, 1_000)
        shapes = {"shapes": f"[[{size // 4}]]", "dtypes": '["float"]'}
        gloo = {"thread": b.thread("gloo"), "kind": HostKind.ANNOTATION}
        b.op("gloo:all_reduce", at + 1_000, 500_000, **gloo, **shapes)
        return
    args = {"In msg nelems": size // 4, "dtype": "Float", "Group size": 2}
    of = {
        "kind": DeviceKind.COLLECTIVE,
        "collective": "allreduce",
        "collective_args": json.dumps(args),
    }
    b.launch(at - 2 * MS, 10_000, "ncclDevKernel_AllReduce_Sum_f32", at, 500_000, **of)


@pytest.mark.parametrize(("ranks", "who"), [(2, "Both ranks"), (4, "4 ranks")])
def test_shared_out_each_rank_computes_its_part(outcome, ranks, who):
    (found,) = outcome("same-work-on-ranks", computing(ranks=ranks)).findings
    assert found.summary.startswith(
        f"{who} compute the same in loss_on_logits (train.py:12): the bits that 1 operation a step"
        " give, mostly aten::_log_softmax, are equal; 4.00 ms of the device's time"
    )
    assert [change.factor for change in found.changes] == [1 / ranks]
    assert "its part" in found.fix


def test_where_nearly_all_is_the_same_they_have_the_same_batch(outcome):
    (found,) = outcome("same-work-on-ranks", computing(shared=1.0)).findings
    assert "they are given the same batch" in found.summary
    assert "DistributedSampler" in found.hint


# 8 MB at 16 MB each 500 us, of which a gather moves half as many times: 125 us of the 4 ms.
@pytest.mark.parametrize("on_device", [True, False])
def test_what_the_ranks_must_hand_each_other_is_subtracted(outcome, on_device):
    trace = computing(on_device=on_device, large=8_000_000, reduced=16_000_000)
    (found,) = outcome("same-work-on-ranks", trace).findings
    (least,), (most,) = found.changes, found.at_best
    assert least.factor == pytest.approx(0.5 + 0.125 / 4, abs=1e-4)
    assert most.factor == 0.5
    assert "Gathering all results (8 MB) would take 125 µs" in found.fix


def test_an_exchange_that_takes_longer_than_the_work_wins_nothing(outcome):
    trace = computing(large=800_000_000, reduced=16_000_000)
    (found,) = outcome("same-work-on-ranks", trace).findings
    assert [change.factor for change in found.changes] == [1.0]


# Between the halves nothing, or something that needs the first.
@pytest.mark.parametrize(("twice", "handed_out"), [(1, 8_000_000), (2, 16_000_000)])
def test_of_operations_after_each_other_the_last_result_is_handed_out(outcome, twice, handed_out):
    trace = computing(large=8_000_000, reduced=16_000_000, twice=twice)
    (found,) = outcome("same-work-on-ranks", trace).findings
    sizes = {one.what: one.value for one in found.evidence}
    assert sizes["results that other work may read"] == handed_out


# No collective; one that is too small to tell a rate; sizes that were not noted.
@pytest.mark.parametrize(
    ("large", "reduced"), [(8_000_000, 0), (8_000_000, 4_000), (0, 16_000_000)]
)
@pytest.mark.parametrize("on_device", [True, False])
def test_without_a_rate_it_is_said_that_the_exchange_is_not_in_it(
    outcome, large, reduced, on_device
):
    trace = computing(large=large, reduced=reduced, on_device=on_device)
    (found,) = outcome("same-work-on-ranks", trace).findings
    assert ([change.factor for change in found.changes], found.at_best) == ([0.5], ())
    assert "is not in the gain" in found.fix


def test_another_batch_needs_no_exchange(outcome):
    trace = computing(shared=1.0, large=8_000_000, reduced=16_000_000)
    (found,) = outcome("same-work-on-ranks", trace).findings
    assert ([change.factor for change in found.changes], found.at_best) == ([0.5], ())
    assert "exchange" not in found.fix


def test_on_a_cpu_its_operators_take_less(outcome):
    (found,) = outcome("same-work-on-ranks", computing(on_device=False)).findings
    assert [change.factor for change in found.changes] == [0.5]


@pytest.mark.parametrize("kind", ["step", "within", "unused", "order"])
def test_other_work_in_vain_is_another_cause(outcome, kind):
    assert outcome("same-work-on-ranks", computing(kind)).findings == ()
