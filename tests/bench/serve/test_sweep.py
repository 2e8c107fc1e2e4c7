import json

import msgspec
import pytest

from pinchpoint.bench.metrics import Summary
from pinchpoint.bench.serve.client import Answer
from pinchpoint.bench.serve.load import (
    Load,
    Prompt,
    Request,
    arrivals_s,
    prompts_from,
    random_prompts,
    with_prefix,
)
from pinchpoint.bench.serve.sweep import (
    Sweep,
    SweepPoint,
    beyond,
    judged,
    knee,
    ramp_points,
    swept,
)
from pinchpoint.errors import UnreadableFile
from pinchpoint.report import html
from pinchpoint.report.pages.bench import sweep_page
from pinchpoint.report.pages.result import blocks


def _point(rate, *, keeps=1.0, p95=50.0, met=None):
    return SweepPoint(
        offered_per_s=rate,
        rate_per_s=rate,
        answered_per_s=rate * keeps,
        keeps_up_ratio=keeps,
        met_ratio=met,
        e2e_ms=Summary(count=100, median=20.0, p95=p95),
    )


def test_the_knee_is_the_last_rate_that_is_kept_up_with():
    points = judged([_point(8, keeps=0.6, p95=900), _point(1), _point(2), _point(4)])
    assert [p.rate_per_s for p in points] == [1, 2, 4, 8]
    assert knee(points) == 4
    assert points[-1].why == "it falls behind: 4.8 of 8 a second"


def test_without_objectives_twice_the_latency_is_beyond():
    points = judged([_point(1, p95=50), _point(2, p95=99), _point(4, p95=101)])
    assert knee(points) == 2
    assert points[-1].why == "p95 is 2.0 × that of the lowest rate"


def test_objectives_decide_where_they_are_given():
    points = judged([_point(1, met=1.0), _point(2, p95=500, met=0.95), _point(4, met=0.8)])
    assert knee(points) == 2
    assert points[-1].why == "80 % of the requests meet the objectives"


def test_what_is_above_a_rate_beyond_the_knee_is_beyond_too():
    points = judged([_point(1), _point(2, met=0.1), _point(4, met=1.0)])
    assert [p.below_knee for p in points] == [True, False, False]


def test_a_ramp_saturates_where_more_comes_in_than_goes_out():
    """A server of 100 a second, one after the other; arrivals from 20 to 200 a second."""
    load = Load(800, rate_per_s=20.0, rate_end_per_s=200.0)
    free_ns, requests = 0, []
    for at in arrivals_s(load):
        meant = round(at * 1e9)
        free_ns = max(free_ns, meant) + 10_000_000
        requests.append(Request(meant, meant, Answer(meant, (free_ns - 1000, free_ns), free_ns, 2)))
    points = judged(ramp_points(requests, load, {"e2e": 100.0}))
    assert [round(p.rate_per_s) for p in points] == [31, 54, 76, 99, 121, 144, 166, 189]
    assert 50 < knee(points) <= 100  # what it can answer
    assert "falls behind" in points[-1].why
    page = html.render(blocks(sweep_page(_sweep(points))))
    assert page.count("<polyline") == 7  # sent, answered, good ones; four latencies


def _sweep(points):
    return Sweep(
        session_id="s",
        bench_id="serve",
        model="m",
        objectives_ms={"e2e": 100.0},
        points=points,
        ramp=True,
        knee_per_s=knee(points),
        beyond_per_s=beyond(points),
        saturates=True,
    )


def test_the_knee_is_no_rate_that_never_came():
    """Drawn for 35 a second, the requests of a short part came at 26."""
    point = msgspec.structs.replace(_point(35), offered_per_s=26.0)
    assert knee(judged([_point(10), point])) == 26.0


def _sent(*loads):
    """``send`` of a sweep that gives these in turn, and the rates that it was asked for."""
    asked = []

    def send(rate, i):
        assert i == len(asked)
        asked.append(rate)
        return loads[i]

    return send, asked


def test_one_load_of_three_that_is_kept_up_with_shows_that_the_server_can():
    """At 2 a second the first load fell behind, in a busy moment; at 4 all three do."""
    slow = _point(4, keeps=0.5)
    send, asked = _sent(_point(1), _point(2, keeps=0.7), _point(2), slow, slow, slow)
    points = judged(swept([4, 1, 8, 2], send, lambda _: None))
    assert asked == [1, 2, 2, 4, 4, 4]  # and none at 8, as these would only queue
    assert [(p.rate_per_s, p.loads, p.below_knee) for p in points] == [
        (1, 1, True),
        (2, 2, True),
        (4, 3, False),
    ]
    assert (knee(points), beyond(points)) == (2, 4)
    assert points[-1].why == "it falls behind: 2 of 4 a second, in the best of 3 loads"
    assert "keeps up to 2 requests a second, and not to 4" in sweep_page(_sweep(points)).headline


def test_latency_of_a_machine_on_which_the_generator_waited_tells_nothing():
    """5 % of the median of 20 ms is 1 ms; the rate after it falls behind for certain."""
    lagging = msgspec.structs.replace(_point(2, p95=200), lag_ms=5.0)
    sure = msgspec.structs.replace(_point(4, keeps=0.5), lag_ms=5.0, window_s=50.0, late_ms=20.0)
    for unsure, below in ((lagging, None), (_point(2, p95=200), False)):
        points = judged([_point(1), unsure, sure])
        assert [p.below_knee for p in points] == [True, below, False]
    points = judged([_point(1), lagging, sure])
    assert "the load generator itself waited up to 5 ms for a CPU (p95): cannot" in points[1].why
    said = sweep_page(_sweep(points)).headline
    assert "keeps up to 1 requests a second at least, and not to 4; between, this" in said
    kept = judged([_point(1), lagging, _point(4)])
    assert knee(kept) == 4  # it can more than that


def test_a_generator_that_sent_late_made_the_load_longer_itself():
    """50 s in place of 40, and the last requests were sent 8 s late."""
    late = msgspec.structs.replace(_point(4, keeps=0.8), window_s=50.0, late_ms=8000.0)
    assert judged([_point(1), late])[1].below_knee is None
    in_time = msgspec.structs.replace(late, late_ms=100.0)
    assert judged([_point(1), in_time])[1].below_knee is False


def test_no_rate_is_kept_up_with():
    points = judged([_point(1, keeps=0.5), _point(2, keeps=0.2)])
    assert knee(points) is None


def test_sharegpt_conversations(tmp_path):
    path = tmp_path / "data.json"
    turns = [{"from": "human", "value": "why?"}, {"from": "gpt", "value": "for the sake of it"}]
    path.write_text(json.dumps([{"id": "a", "conversations": turns}, {"conversations": []}]))
    assert prompts_from(path) == [Prompt("why?", 7)]  # 5 words, 4 tokens for 3 words


@pytest.mark.parametrize("text", ['[{"conversations": []}]', "[1]", '[{"conversations": ['])
def test_no_conversation_is_said(text, tmp_path):
    path = tmp_path / "data.json"
    path.write_text(text)
    with pytest.raises(UnreadableFile):
        prompts_from(path)


def test_a_shared_prefix_is_the_same_before_every_prompt():
    found = with_prefix([Prompt("a", 3), Prompt("b")], 4, 0)
    prefix = random_prompts(1, 4, 0)[0].prompt
    assert found == [Prompt(f"{prefix} a", 3), Prompt(f"{prefix} b")]
