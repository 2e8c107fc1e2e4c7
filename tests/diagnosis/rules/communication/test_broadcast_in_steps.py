import pytest

from builders import TraceBuilder
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


MS = 1_000_000


def on_cpus(*, wrapped=True, waited=0, sent=(1, 1, 1, 1, 1), packs=False):
    """Steps of 30 ms: gloo sends 2 MB for 8 ms, in all steps but one longer by what it waits
    for the other rank; then a product of 15 ms."""
    b = TraceBuilder()
    b.devices = []
    gloo = b.thread("gloo")
    for step, times in enumerate(sent):
        at = step * 30 * MS
        b.step(step, at, 30 * MS)
        if wrapped:
            b.annotation(DDP, at + 1_000, 29 * MS)
        if packs:
            b.op("aten::flatten_dense_tensors", at + 2_000, 2_000)
            b.op("aten::unflatten_dense_tensors", at + 8_100_000, 500_000)
            b.op("aten::copy_", at + 9 * MS, 4 * MS)
            b.op("aten::embedding", at + 13 * MS, 500_000)
            b.op("aten::copy_", at + 13_600_000, 100_000)  # the model's own
        for call in range(times):
            b.op("c10d::broadcast_", at + 5_000 + call, 20_000, shapes="[[[500000]]]")
            b.annotation("gloo:broadcast", at + 30_000, 8 * MS + waited * (step != 2), thread=gloo)
        b.op("aten::mm", at + 14 * MS, 15 * MS)
    return b.trace()


@pytest.mark.parametrize("waited", [0, 2 * MS])
def test_of_a_program_on_cpus_what_the_backend_sends(outcome, waited):
    (finding,) = outcome("broadcast-in-steps", on_cpus(waited=waited)).findings
    assert finding.summary == (
        "DistributedDataParallel sends buffers of 2 MB to all ranks in each step, 8.00 ms in which"
        " nothing is computed"
    )
    assert "broadcast_buffers=False" in finding.hint


def test_of_a_program_on_cpus_other_broadcasts_are_not_of_buffers(outcome):
    (finding,) = outcome("broadcast-in-steps", on_cpus(wrapped=False)).findings
    assert finding.summary.startswith("Broadcasts send 2 MB to all ranks")


def test_of_a_program_on_cpus_that_sends_now_and_then(outcome):
    assert outcome("broadcast-in-steps", on_cpus(sent=(0, 2, 0, 0, 0))).answer == "not checked"
    assert outcome("broadcast-in-steps", on_cpus(sent=(0,) * 5)).answer == "clear"


def test_what_the_wrapper_packs_and_unpacks_goes_with_them(outcome):
    (finding,) = outcome("broadcast-in-steps", on_cpus(packs=True)).findings
    assert "and 4.50 ms to pack and unpack them" in finding.summary
    assert finding.beside_collectives_ns == 4_502_000
    assert len(finding.changes[1].start_ns) % 3 == 0
    (without,) = outcome("broadcast-in-steps", on_cpus()).findings
    assert without.beside_collectives_ns == 0
