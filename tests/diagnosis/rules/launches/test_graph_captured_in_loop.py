import pytest

from pinchpoint.trace import ApiKind
from program import Program

REPLAYS = 10


def serving(*, capturing=range(6), frames=True, buys_us=0):
    """Each step replays a graph; some capture it before: a wait, a free, 2 ms of launches."""
    p = Program()
    for step in p.steps(6):
        with p.frame("serve.py(20): answer"):
            if step in capturing:
                if buys_us:  # a first pass, which finds no cached memory
                    p.call("cudaMalloc", ApiKind.MALLOC, buys_us)
                if frames:
                    with p.frame("torch/cuda/graphs.py(237): __enter__"):
                        begin(p)
                    with p.frame("torch/cuda/graphs.py(264): __exit__"):
                        end(p)
                else:
                    begin(p)
                    end(p)
            for _ in range(REPLAYS):
                p.kernel("graphed", 200)
        p.sync()
    return p.trace()


def begin(p):
    p.call("cudaDeviceSynchronize", ApiKind.SYNC_DEVICE, 100)
    p.call("cudaFree", ApiKind.FREE, 300)
    p.call("cudaStreamBeginCapture", ApiKind.GRAPH_BUILD, 5)
    p.busy(1_000)
    p.call("cudaMalloc", ApiKind.MALLOC, 600)


def end(p):
    p.call("cudaStreamEndCapture", ApiKind.GRAPH_BUILD, 10)
    p.call("cudaGraphInstantiate", ApiKind.GRAPH_BUILD, 500)


def test_all_around_a_capture_belongs_to_it(outcome, ranked):
    trace = serving()
    (finding,) = outcome("graph-captured-in-loop", trace).findings
    assert finding.evidence[0].value == 1
    assert finding.cost_ns_per_step == pytest.approx(2_515_000, rel=0.01)
    assert finding.location.function == "answer"
    assert ranked(trace) == ["graph-captured-in-loop"]
    assert outcome("empty-cache-in-loop", trace).answer == "clear"


def test_without_it_the_graphs_remain(predicted):
    after = predicted(serving(), "graph-captured-in-loop")
    assert after == pytest.approx(REPLAYS * 200_000, rel=0.05)


def test_memory_that_captures_gave_back_is_not_bought_again(predicted):
    after = predicted(serving(buys_us=3_000), "graph-captured-in-loop")
    assert after == pytest.approx(REPLAYS * 200_000, rel=0.05)


def test_without_python_the_capture_alone_counts(outcome):
    (finding,) = outcome("graph-captured-in-loop", serving(frames=False)).findings
    assert finding.cost_ns_per_step == pytest.approx(2_115_000, rel=0.01)


@pytest.mark.parametrize("capturing", [(), (0,), (3,)], ids=["never", "at first", "once"])
def test_one_capture_of_a_program_is_none(outcome, capturing):
    assert outcome("graph-captured-in-loop", serving(capturing=capturing)).answer == "clear"
