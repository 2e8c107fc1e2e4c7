"""Results of benchmarks in JSON: llama-bench, NCCL's inspector, trtexec's times."""

import json

import pytest

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load

LLAMA_BENCH = [
    {
        "model_type": "llama 7B Q4_0",
        "gpu_info": "NVIDIA RTX 4090",
        "flash_attn": flash,
        "n_prompt": prompt,
        "n_gen": gen,
        "avg_ts": rate,
        "stddev_ts": 0.5,
    }
    for flash, prompt, gen, rate in (
        (False, 512, 0, 1000.0),
        (True, 512, 0, 1250.5),
        (True, 0, 128, 90.25),
    )
]
INSPECTED = {
    "header": {"id": "0x7f", "rank": 2, "n_ranks": 8, "nnodes": 1},
    "metadata": {"inspector_output_format_version": "v4.0", "dump_timestamp_us": 1748030377748202},
    "coll_perf": {
        "coll": "AllReduce",
        "coll_msg_size_bytes": 4096,
        "coll_exec_time_us": 30,
        "coll_busbw_gbs": 2.5,
    },
}


def run(number):
    """Starts each 2 ms: 0.2 ms in, 1.5 ms of the engine, 0.1 ms out."""
    start = 2.0 * number
    return {
        "startInMs": start,
        "endInMs": start + 0.2,
        "inMs": 0.2,
        "startComputeMs": start + 0.2,
        "endComputeMs": start + 1.7,
        "computeMs": 1.5,
        "outMs": 0.1,
        "latencyMs": 1.8,
    }


def kept(folder, content, name="result.json"):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_llama_bench_names_tests_as_it_does_and_shows_what_differs(tmp_path):
    (table,) = load(kept(tmp_path, LLAMA_BENCH)).summaries
    assert table.title == "llama 7B Q4_0, NVIDIA RTX 4090"
    assert table.columns == ("test", "tokens/s", "±", "flash_attn")
    assert table.rows[0] == ("pp512", "1,000", "0.5", "False")
    assert [row[0] for row in table.rows] == ["pp512", "pp512", "tg128"]


def test_llama_bench_is_read_as_lines_and_as_csv(tmp_path):
    (table,) = load(kept(tmp_path, LLAMA_BENCH)).summaries
    lines = "\n".join(json.dumps(one) for one in LLAMA_BENCH)
    names = list(LLAMA_BENCH[0])
    rows = [",".join(names), *(",".join(str(o[n]) for n in names) for o in LLAMA_BENCH)]
    for name, content in (("r.jsonl", lines), ("r.csv", "\n".join(rows))):
        assert load(kept(tmp_path, content, name)).summaries[0].rows == table.rows


def test_collectives_are_summed_by_kind_and_size(tmp_path):
    slow = {**INSPECTED, "coll_perf": {**INSPECTED["coll_perf"], "coll_exec_time_us": 50}}
    text = "\n".join(json.dumps(one) for one in (INSPECTED, slow, slow))
    trace = load(kept(tmp_path, text + '\n{"header": {"rank"', "rank2.log"))
    (table,) = trace.summaries
    assert table.title == "rank 2 of 8"
    assert table.rows == (("AllReduce", "4,096", "3", "50", "50", "2.5"),)
    assert trace.source.truncated


def test_an_inspector_that_timed_nothing_says_what_to_set(tmp_path):
    path = kept(tmp_path, json.dumps({**INSPECTED, "coll_perf": {}}), "rank2.log")
    with pytest.raises(UnreadableFile, match="no collective") as error:
        load(path)
    assert "MIN_SIZE_BYTES" in error.value.hint


def test_times_of_tensorrt_by_part_and_how_much_the_engine_runs(tmp_path):
    parts, span = load(kept(tmp_path, [run(n) for n in range(10)], "times.json")).summaries
    assert [row[0] for row in parts.rows] == [
        "copies to the device",
        "the engine on the device",
        "copies from the device",
        "latency",
    ]
    assert parts.rows[1][1:3] == ("10", "1.5")
    # ten times 1.5 ms from 0.2 to 19.7 ms
    assert dict(span.rows)["the engine runs (%)"] == "76.92"


def test_runs_that_overlap_are_not_counted_twice(tmp_path):
    twice = [run(0), run(0), run(1)]
    _, span = load(kept(tmp_path, twice, "times.json")).summaries
    assert dict(span.rows)["the engine runs (%)"] == "85.71"  # 3 of 3.5 ms


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([{"startInMs": "soon"}], "without one run"),
        ([{**LLAMA_BENCH[0], "avg_ts": "fast"}], "without one rate"),
        (json.dumps(LLAMA_BENCH)[:-9], "cut off or broken"),
    ],
)
def test_what_says_nothing_is_refused(tmp_path, content, said):
    with pytest.raises(UnreadableFile, match=said):
        load(kept(tmp_path, content))


def test_events_of_the_example_profiler_are_named(tmp_path):
    event = '{"name": "AllReduce", "cat": "COLL", "ph": "b", "id": 0, "pid": 1, "tid": 1, "ts": 1}'
    with pytest.raises(UnreadableFile, match="example profiler"):
        load(kept(tmp_path, f"[\n{event},\n{{}}]", "ncclprof.json"))
