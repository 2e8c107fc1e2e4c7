"""Two stages of a pipeline: forward 2 ms, backward 4 ms on each, 1 MB between them in 0.1 ms."""

import json

import pytest

from builders import TraceBuilder
from host_ranks import stages_of_hosts, traces_of_hosts
from pinchpoint.analysis.ranks.job import reduce
from pinchpoint.analysis.ranks.summarise import summarise
from pinchpoint.diagnosis.job import diagnose_job
from pinchpoint.trace import ApiKind, DeviceKind

MS = 1_000_000
SEND = MS // 10
GROUP = {"Group size": 2, "Process Group Name": "3", "Process Group Ranks": "[0, 1]"}
ARGUMENTS = {"In msg nelems": 1 << 18, "Out msg nelems": 1 << 18, "dtype": "Float"}


class Stage:
    """One rank: its device runs one thing after the other."""

    def __init__(self, rank):
        self.rank, self.builder, self.now, self.host = rank, TraceBuilder(), 0, 0

    def begins(self, at):
        self.now = self.host = at

    def _launch(self, name, end, **more):
        self.builder.launch(
            self.host, 5_000, name, self.now + 10_000, end - self.now - 10_000, **more
        )
        self.host += 6_000
        self.now = end

    def work(self, ms):
        self._launch("gemm", self.now + round(ms * MS))
        return self.now

    def passes(self, kind, end):
        """A transfer in which the rank stands until then."""
        peer = {"send": "Dst Rank", "recv": "Src Rank"}.get(kind)
        arguments = ARGUMENTS | GROUP | ({peer: str(1 - self.rank)} if peer else {})
        self._launch(
            "ncclDevKernel_SendRecv" if peer else "ncclDevKernel_AllReduce",
            end,
            kind=DeviceKind.COLLECTIVE,
            collective=kind,
            stream=20,
            collective_args=json.dumps(arguments),
        )


def meet(ranks, kinds, *, at=0):
    end = max(at, *(r.now for r in ranks)) + SEND
    for rank, kind in zip(ranks, kinds, strict=True):
        rank.passes(kind, end)


def stages(*, pieces=4, ahead=0, work=(1.0, 1.0), steps=6):
    """``ahead``: forwards of the first stage before its first backward, beyond one."""
    first, last = Stage(0), Stage(1)
    for step in range(steps):
        begin = max(first.now, last.now) + MS // 2
        for stage in (first, last):
            stage.begins(begin)
        done = [0] * pieces  # when the second stage has the gradient of each
        forward = 0
        for piece in range(pieces):
            while forward <= min(piece + ahead, pieces - 1):
                first.work(2 * work[0])
                ready = first.now + SEND
                arrives = max(ready, last.now + SEND)
                first.passes("send", ready)
                last.passes("recv", arrives)
                last.work(6 * work[1])
                done[forward] = last.now
                last.passes("send", last.now + SEND)
                forward += 1
            first.passes("recv", max(first.now, done[piece]) + SEND)
            first.work(4 * work[0])
        meet((first, last), ("allreduce", "allreduce"))
        for stage in (first, last):
            stage.builder.api(
                "cudaStreamSynchronize",
                stage.host,
                stage.now - stage.host,
                kind=ApiKind.SYNC_STREAM,
            )
            stage.builder.step(step, begin, stage.now - begin)
    return [s.builder.trace(rank=s.rank, world_size=2, origin_ns=10**18) for s in (first, last)]


def found(**more):
    summaries = [summarise(trace) for trace in stages(**more)]
    job = reduce(lambda: iter(summaries))
    return job, [f for f in diagnose_job(job).found if f.id == "stages-take-turns"]


def test_stages_of_which_one_works_at_a_time():
    job, (said,) = found()
    (turns,) = job.turns
    assert (turns.ranks, turns.messages, turns.in_flight) == ((0, 1), 4.0, 1)
    assert turns.at_once == pytest.approx(1.0, abs=0.02)
    assert turns.own_ns == pytest.approx((24 * MS, 24 * MS), rel=0.03)
    # Four pieces of 6 ms on each of two stages: 48 ms one by one, 30 ms at best.
    assert said.predicted.range_ns[0] == pytest.approx(30 * MS, rel=0.04)
    assert "each sends one of 4 pieces" in said.finding.summary


@pytest.mark.parametrize(
    "healthy",
    [
        pytest.param({"ahead": 1}, id="one more in flight"),
        pytest.param({"ahead": 1, "pieces": 2}, id="few micro-batches"),
        pytest.param({"pieces": 1}, id="one exchange a step"),
        pytest.param({"work": (1.0, 0.1)}, id="one stage has the work"),
    ],
)
def test_what_is_no_turns(healthy):
    assert found(**healthy)[1] == []


def test_backends_of_the_host_do_not_say_for_whom_a_message_is():
    for what, answer in (("recv", "not checked"), ("all_reduce", "clear")):
        summaries = [summarise(trace) for trace in traces_of_hosts(10, 20, what=what)]
        said = diagnose_job(reduce(lambda them=summaries: iter(them)))
        assert {o.id: o.answer for o in said.outcomes}["stages-take-turns"] == answer


def of_hosts(**more):
    summaries = [summarise(trace) for trace in stages_of_hosts(**more)]
    job = reduce(lambda: iter(summaries))
    return job, [f for f in diagnose_job(job).found if f.id == "stages-take-turns"]


def test_a_batch_that_is_one_piece():
    """The first waits 62 ms, in which the second works 60; both are told by their own clocks."""
    job, (said,) = of_hosts()
    stages = job.one_piece
    assert stages.ranks == (0, 1)
    assert stages.waited_ns == (62 * MS, 30 * MS)
    assert stages.answer_ns == (50 * MS, 60 * MS)
    # Of steps of 112 ms: the second has 82 without its wait, so 1.25 times that for 4 pieces.
    assert said.predicted.step_ns == pytest.approx(102.5 * MS, rel=0.01)
    assert "all of the batch is one piece" in said.finding.summary


@pytest.mark.parametrize(
    "healthy",
    [
        pytest.param({"exchange": True}, id="both send before they receive"),
        pytest.param({"second_ms": 3, "first_ms": 97}, id="one stage has the work"),
    ],
)
def test_what_is_no_batch_in_one_piece(healthy):
    assert of_hosts(**healthy)[1] == []
