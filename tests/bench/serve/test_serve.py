import asyncio
import json
import sys
import time
from unittest import mock

import numpy as np
import pytest

from bench.serve.fake_server import serving
from pinchpoint.bench.metrics import read_metrics
from pinchpoint.bench.run import Place
from pinchpoint.bench.serve import client
from pinchpoint.bench.serve.client import Answer, ask, endpoint
from pinchpoint.bench.serve.load import (
    Load,
    Prompt,
    Request,
    arrivals_s,
    body,
    prompts_from,
    random_prompts,
    run_load,
)
from pinchpoint.bench.serve.run import ServePlan, serve_run, served
from pinchpoint.cli import main as cli
from pinchpoint.errors import UnreadableFile, UsageError

MS = 1_000_000


def _ask(url, model="good", timeout_s=20.0, **more):
    content = body(Prompt("hello"), model=model, max_tokens=9, chat=False, extra=more)
    return asyncio.run(ask(endpoint(url, {}), content, timeout_s))


def test_a_stream_is_read_with_the_servers_own_count():
    with serving(tokens=5) as (url, _):
        answer = _ask(url)
    assert answer.error is None
    assert len(answer.chunk_ns) == 5
    assert answer.tokens == 10
    assert answer.sent_ns <= answer.chunk_ns[0] <= answer.chunk_ns[-1] <= answer.end_ns


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("no such model", "status 404"),
        ("not http", "a broken HTTP answer"),
        ("cut off", "a broken HTTP answer: peer closed connection without sending complete"),
        ("nothing", "no text"),
        ("not json", "not JSON"),
        ("long header", "a broken HTTP answer: Receive buffer too long"),
    ],
)
def test_a_bad_answer_is_a_failed_request(model, said):
    with serving() as (url, _):
        assert said in _ask(url, model).error


def test_each_chunk_has_the_time_of_its_arrival():
    """A server that waits for a word between its chunks: no stamp may come from a later one."""
    begin = time.perf_counter_ns()
    with serving(tokens=3, gate=True) as (url, server):
        answer, released_ns = asyncio.run(_read_chunk_by_chunk(url, server))
    assert answer.error is None
    assert begin < answer.chunk_ns[0]
    for i in range(3):
        assert released_ns[i] <= answer.chunk_ns[i]
        if i < 2:
            assert answer.chunk_ns[i] <= released_ns[i + 1]


async def _read_chunk_by_chunk(url, server):
    """The answer, and when each chunk was let go: only after the one before had come."""
    come, released_ns, has_text = asyncio.Queue(), [], client._has_text

    def looked_at(event):
        come.put_nowait(None)
        return has_text(event)

    content = body(Prompt("hello"), model="good", max_tokens=9, chat=False, extra={})
    with mock.patch.object(client, "_has_text", looked_at):
        asking = asyncio.create_task(ask(endpoint(url, {}), content, 20.0))
        for _ in range(3):
            released_ns.append(time.perf_counter_ns())
            server.let_one_go()
            await come.get()
        return await asking, released_ns


def test_without_its_library_the_command_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "h11", None)
    assert cli(["bench", "serve", "http://127.0.0.1:9/v1"]) == 2
    said = capsys.readouterr().err
    assert said.splitlines()[0] == "error: bench serve needs the package h11"
    assert "pip install h11" in said
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_hangs_is_left():
    with serving() as (url, _):
        assert "no end within 0.2 s" in _ask(url, "hang", timeout_s=0.2).error


def test_nobody_listens():
    assert "ConnectionRefusedError" in _ask("http://127.0.0.1:9/v1/completions").error


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/", "http://"])
def test_not_an_address(url):
    with pytest.raises(UsageError, match="not an http address"):
        endpoint(url, {})


def _request(meant, first, last, tokens, sent=None):
    chunks = tuple(int(c * MS) for c in np.linspace(first, last, max(2, tokens // 2)))
    answer = Answer((sent or meant) * MS, chunks, int(last * MS), tokens)
    return Request(meant * MS, meant * MS, answer)


def test_latencies_count_from_its_turn():
    found = served([_request(0, 100, 190, 10, sent=40)], {})
    assert found.latency_ms["ttft"].median == 100.0
    assert found.latency_ms["e2e"].median == 190.0
    assert found.latency_ms["tpot"].median == 10.0
    assert found.latency_ms["itl"].median == pytest.approx(22.5)  # five chunks of two tokens
    assert found.late_ms == 40.0
    assert found.output_tokens == 10
    assert found.window_s == pytest.approx(0.19)


def test_what_the_generator_itself_takes_before_it_sends_is_no_latency():
    """It had taken 5 ns when its turn came, and 25 when the request was sent."""

    async def one(i):
        return Answer(begun[-1] + 40 * MS, (begun[-1] + 90 * MS,), begun[-1] + 90 * MS, 1, None, 25)

    begun, taken = [], iter([5, 5])

    def own_ns():
        begun.append(time.perf_counter_ns())
        return next(taken)

    found = asyncio.run(run_load(Load(2), one, own_ns))
    assert [r.begin_ns - r.meant_ns for r in found] == [20, 20]


def test_percentiles_of_few_requests_have_an_open_side():
    few = served([_request(i, i + 10 + i, i + 50 + i, 4) for i in range(20)], {})
    assert few.latency_ms["ttft"].p95_ci95 is None
    assert few.latency_ms["ttft"].p95_bounds == (26.0, None)  # 17th: P(Bin(20, .95) <= 16) = 1.6 %
    assert "n=20 < 72" in few.unknown["latency_ms.ttft.p95_ci95"]
    many = served([_request(i, i + 10 + i % 7, i + 50, 4) for i in range(400)], {})
    assert many.latency_ms["ttft"].p99 is not None
    low, high = many.latency_ms["ttft"].p95_ci95
    assert low <= many.latency_ms["ttft"].p95 <= high


def test_goodput_counts_requests_that_meet_every_objective():
    requests = [_request(0, 100, 190, 10), _request(0, 300, 1000, 10)]
    found = served(requests, {"ttft": 200, "tpot": 50})
    assert found.goodput_req_per_s == pytest.approx(1.0)
    assert served(requests, {}).goodput_req_per_s is None


def test_failures_are_counted_by_reason():
    bad = Request(0, 0, Answer(0, (), 5 * MS, None, "status 503"))
    found = served([bad, bad, _request(0, 1, 2, 4)], {})
    assert (found.ok, found.failed, found.errors) == (1, 2, {"status 503": 2})
    assert served([bad], {}).latency_ms["ttft"].count == 0


def test_open_loop_arrivals_are_poisson_and_seeded():
    load = Load(2000, rate_per_s=50.0, seed=3)
    times = np.array(arrivals_s(load))
    assert times[0] == 0.0
    assert times[-1] == pytest.approx(40.0, rel=0.1)
    assert np.diff(times).std() == pytest.approx(0.02, rel=0.1)
    assert list(times) == list(arrivals_s(load))


def test_closed_loop_keeps_to_its_clients():
    inside = {"now": 0, "most": 0}

    async def one(i):
        inside["now"] += 1
        inside["most"] = max(inside["most"], inside["now"])
        await asyncio.sleep(0)
        inside["now"] -= 1
        return Answer(0, (1,), 2, None)

    done = asyncio.run(run_load(Load(20, concurrency=4), one))
    assert len(done) == 20
    assert inside["most"] == 4


def test_a_run_against_the_server(tmp_path):
    with serving() as (url, server):
        plan = ServePlan(
            bench_id="s",
            where=endpoint(url, {"Authorization": "Bearer secret"}),
            model="good",
            prompts=random_prompts(50, 8, seed=0),
            load=Load(40, rate_per_s=5000.0),
            objectives_ms={"e2e": 60_000.0},
            warmup_requests=2,
        )
        run = serve_run(plan, Place(tmp_path / "r"))
    assert (run.requests_ok, run.requests_failed, run.load_mode) == (40, 0, "open")
    assert len(server.bodies) == 42
    assert run.latency_ms["ttft"].count == 40
    assert run.goodput_req_per_s == pytest.approx(run.throughput.value)
    assert read_metrics(tmp_path / "r/metrics.json") == run
    assert len(np.fromfile(tmp_path / "r/requests.f64", "<f8")) == 160
    assert "secret" not in (tmp_path / "r/metrics.json").read_text()
    assert "Authorization: Bearer secret" in server.heads[0]


def test_chat_and_extra_fields():
    asked = body(Prompt("hi", 7), model="m", max_tokens=9, chat=True, extra={"ignore_eos": True})
    assert asked["messages"] == [{"role": "user", "content": "hi"}]
    assert (asked["max_tokens"], asked["ignore_eos"]) == (7, True)


def test_prompts_from_a_file(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}\n\n{"prompt": "b", "max_tokens": 3}\n')
    assert prompts_from(path) == [Prompt("a"), Prompt("b", 3)]
    for bad in ("", "x", '{"text": 1}'):
        path.write_text(bad)
        with pytest.raises(UnreadableFile, match=r"p\.jsonl"):
            prompts_from(path)


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-private")
    with serving() as (url, _):
        words = ["bench", "serve", url, "--model", "good", "-n", "80", "--runs", "2", "-o", "out"]
        assert cli([*words, "--goodput", "ttft:60000"]) == 0
        ramp = ["--ramp", "500:2000", "--percentile", "p95", "-o", "ramp"]
        assert cli(["bench", "serve", url, *ramp]) == 0
        rates = ["--sweep", "200,400", "-n", "80", "-o", "sweep"]
        assert cli(["bench", "serve", url, *rates]) == 0
    out = capsys.readouterr().out
    assert "serve: 8 parts of a ramp" in out
    assert "first token (TTFT)" in out
    assert "2 of 2 loads valid" in out
    result = json.loads((tmp_path / "out/result.json").read_bytes())
    assert result["kind"] == "serve"
    summary = json.loads((tmp_path / "out/metrics.json").read_bytes())
    p99 = summary["durations_ms"]["e2e"]["p99"]
    assert (summary["schema"], p99["samples"]) == ("bench.summary/1", 2)  # two loads
    assert p99["low"] <= p99["value"] <= p99["high"]
    assert summary["commit"] is None
    assert summary["unknown"]["commit"]
    ramp, sweep = (
        json.loads((tmp_path / n / "metrics.json").read_bytes()) for n in ("ramp", "sweep")
    )
    assert (ramp["kind"], len(ramp["rates"])) == ("ramp", 8)
    assert (sweep["kind"], sweep["schema"]) == ("sweep", "bench.summary/1")
    first = sweep["rates"][0]
    assert first["rate_per_s"] == 200
    assert first["durations_ms"].keys() == {"ttft", "tpot", "itl", "e2e"}
    assert first["durations_ms"]["e2e"].keys() == {"p50", "p95", "p99"}
    asked, knee = [r["rate_per_s"] for r in sweep["rates"] if r["below_knee"]], sweep["knee_per_s"]
    assert 0 < knee <= max(asked) if asked else knee is None  # at which requests really came
    assert sweep["unknown"].keys() == {"commit", "image_digest"}
    assert all("sk-private" not in p.read_text() for p in tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nonsense"], 2, "not an http address"),
        (["http://127.0.0.1:9/v1", "-n", "2", "--runs", "1"], 5, "ConnectionRefusedError"),
        (["http://127.0.0.1:9/v1", "-n", "2", "--sweep", "90,99"], 5, "no request was answered"),
        (["http://127.0.0.1:99999/v1"], 2, "Port out of range"),
        (["http://x/", "--goodput", "speed:3"], 2, "--goodput"),
        (["http://x/", "--body", "[1]"], 2, "--body"),
        (["http://x/", "--runs", "0"], 2, "start at 1"),
        (["http://x/", "--output-tokens", "0"], 2, "start at 1"),
        (["http://x/", "--num-warmups=-1"], 2, "start at 0"),
        (["http://x/", "--request-rate=-3"], 2, "--request-rate -3: must be above 0"),
        (["http://x/", "--request-rate", "nan"], 2, "--request-rate nan: must be above 0"),
        (["http://x/", "--timeout", "0"], 2, "--timeout 0: must be above 0"),
        (["http://x/", "--percentile", "p99", "-n", "200"], 2, "an interval of p99 needs 368"),
        (["http://x/", "--ramp", "4"], 2, "--ramp '4': rates above 0, two at least"),
        (["http://x/", "--ramp", "1:4", "--sweep", "1,2"], 2, "one of them"),
    ],
)
def test_command_that_cannot_work(words, code, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli(["bench", "serve", *words]) == code
    assert said in capsys.readouterr().err
