import pytest

from pinchpoint.trace import HostKind
from program import Program

DDP = "DistributedDataParallel.forward"
SIZE = 1 << 28  # elements


def training(*, us=4_000, waited_us=0, sizes=True, of="broadcast", wrapped=True, beside=False):
    """10 ms of work a step, after a broadcast that waits for another rank in all steps but one."""
    p = Program()
    args = {"In msg nelems": SIZE, "dtype": "Float", "Group size": 2} if sizes else {}
    for number in p.steps(6):
        with p.frame("train.py(9): step"):
            around = DDP if wrapped else "send"
            with p.row(around, kind=HostKind.ANNOTATION), p.row("c10d::broadcast_"):
                stream = 20 if beside else 7
                took = us + (waited_us if number != 3 else 0)
                p.collective(took, args, collective=of, stream=stream)
            p.kernel("forward", 10_000)
        p.sync()
    return p.trace()


def test_buffers_of_the_wrapper_are_named_with_their_size(outcome, ranked):
    trace = training()
    (finding,) = outcome("broadcast-in-steps", trace).findings
    assert finding.summary == (
        "DistributedDataParallel sends buffers of 1.07 GB to all ranks in each step, 4.00 ms in"
        " which nothing is computed"
    )
    assert "broadcast_buffers=False" in finding.fix
    assert finding.location.function == "step"
    assert ranked(trace)[0] == "broadcast-in-steps"


def test_the_gain_is_the_transfer_and_not_the_wait(predicted):
    trace = training(waited_us=5_000)
    after_ns = 10e6 + 5e6 * 5 / 6  # who waits there waits elsewhere then
    assert predicted(trace, "broadcast-in-steps") == pytest.approx(after_ns, rel=0.12)


def test_others_are_told_what_to_do_elsewhere(outcome):
    (finding,) = outcome("broadcast-in-steps", training(wrapped=False)).findings
    assert finding.summary.startswith("Broadcasts send 1.07 GB")
    assert "broadcast_buffers" not in finding.fix


@pytest.mark.parametrize(
    "trace",
    [training(of="allreduce"), training(beside=True)],
    ids=["another kind", "beside the work"],
)
def test_what_is_hidden_or_of_another_kind_is_not_meant(ranked, trace):
    assert "broadcast-in-steps" not in ranked(trace)


def test_without_sizes_waiting_looks_like_transfer(outcome):
    assert outcome("broadcast-in-steps", training(sizes=False)).answer == "not checked"
