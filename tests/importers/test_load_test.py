"""Latencies of load tests, and sums of TensorBoard's profile plugin: tables without a timeline."""

import json
import struct

import pytest

from pinchpoint.cli import main
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from xplane_messages import message

VLLM = {
    "backend": "vllm",
    "duration": 10.0,
    "completed": 100,
    "request_throughput": 10.0,
    "output_throughput": 12_800.5,
    "mean_ttft_ms": 41.5,
    "median_ttft_ms": 40.0,
    "p99_ttft_ms": 90.25,
    "mean_e2el_ms": 900.0,
    "itls": [[0.010, 0.020], [0.030]],
}
SGLANG = {"request_throughput": 5.5, "mean_e2e_latency_ms": 812.0, "median_e2e_latency_ms": 800.0}
TENSORRT = {
    "performance": {
        "request_throughput_req_s": 3.5,
        "request_latency_percentiles_ms": {"p50": 700.0, "p99": 950.0, "average": 710.0},
    },
    "streaming_metrics": {"ttft_percentiles": {"p50": 33.0}},
}


def rows(path, table):
    return {row[0]: row[1:] for row in load(path).summaries[table].rows}


def kept(folder, *runs, name="result.json"):
    path = folder / name
    path.write_text("\n".join(json.dumps(run) for run in runs))
    return path


def test_vllm(tmp_path, capsys):
    path = kept(tmp_path, VLLM)
    said = rows(path, 0)
    assert said["time to first token"] == ("40", "41.5", "", "", "90.25")
    assert said["whole request"] == ("", "900", "", "", "")
    assert said["between tokens"] == ("20", "20", "28", "29", "29.8")  # from the requests
    assert rows(path, 1)["output tokens/s"] == ("12,800",)  # half to even
    assert main(["diagnose", str(path), "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert [c["label"] for c in tables["sums-1"]["columns"]][:2] == ["latency (ms)", "median"]
    assert main(["diagnose", str(path)]) == 0
    assert "time to first token" in capsys.readouterr().out


def test_settings_of_the_server_may_come_before_all_results(tmp_path):
    asked = {"tag": None, "dataset_name": "random", "request_rate": 4, "max_concurrency": 1}
    path = kept(tmp_path, asked | {"server_info": {"x" * 100: "y" * 5_000}} | SGLANG)
    assert load(path).summaries[0].rows[0][0] == "whole request"


def test_runs_of_one_file_are_told_apart(tmp_path, capsys):
    runs = [SGLANG | {"max_concurrency": at, "backend": "sglang"} for at in (4, 8)]
    path = kept(tmp_path, *runs, name="result.jsonl")
    trace = load(path)
    assert [t.title for t in trace.summaries[::2]] == [
        "run 1, max_concurrency 4",
        "run 2, max_concurrency 8",
    ]
    assert trace.summaries[0].rows[0][:3] == ("whole request", "800", "812")
    assert main(["diagnose", str(path)]) == 0
    assert "Run 2, max_concurrency 8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"median_e2e_latency_ms": -1.0}, "median is below zero"),
        ({"p99_e2e_latency_ms": 700.0}, "median 800 ms is above p99 700 ms"),
        ({"request_throughput": -5.5}, "requests/s is below zero"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, changed, said):
    with pytest.raises(UnreadableFile, match=said):
        load(kept(tmp_path, SGLANG | changed))


def test_of_requests_that_all_failed_there_is_no_latency(tmp_path, capsys):
    none = {key: 0.0 for key in VLLM if key.endswith("_ms")}
    path = kept(tmp_path, VLLM | none | {"completed": 0, "failed": 8, "itls": []})
    assert [table.columns[0] for table in load(path).summaries] == ["load"]
    assert main(["diagnose", str(path)]) == 0
    assert "no request completed" in capsys.readouterr().out


def test_requests_that_failed_are_said(tmp_path, capsys):
    path = kept(tmp_path, VLLM | {"failed": 3})
    assert main(["diagnose", str(path)]) == 0
    assert "requests failed" in capsys.readouterr().out


def test_a_rate_that_json_cannot_write_is_unknown(tmp_path):
    path = kept(tmp_path, SGLANG | {"request_rate": float("inf"), "p99_ttft_ms": float("nan")})
    assert "Infinity" in path.read_text()
    assert rows(path, 0)["whole request"][0] == "800"


def test_tensorrt(tmp_path):
    path = kept(tmp_path, TENSORRT)
    assert rows(path, 0)["whole request"] == ("700", "710", "", "", "950")
    assert rows(path, 1) == {"requests/s": ("3.5",)}


def test_numbers_that_no_load_has_are_unknown(tmp_path):
    huge = {"p99_ttft_ms": 10**400, "request_throughput": 1e308, "itls": [[1e308, 10**400]]}
    path = kept(tmp_path, VLLM | huge | {"completed": 10**400, "ttfts": [True, "x"]})
    assert rows(path, 0)["time to first token"] == ("40", "41.5", "", "", "")
    assert main(["compare", str(path), str(path), "--fail", "ttft_p99_ms:5%"]) in (0, 2)


def test_percentiles_that_are_no_numbers_are_no_latency(tmp_path):
    said = TENSORRT["performance"] | {"request_latency_percentiles_ms": {"p50": "x"}}
    path = kept(tmp_path, TENSORRT | {"performance": said})
    assert list(rows(path, 0)) == ["time to first token"]


@pytest.mark.parametrize("text", ['{"request_throughput": 1, ', '{"streaming_metrics": null}'])
def test_what_says_nothing_is_one_clear_error(tmp_path, text):
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(UnreadableFile):
        load(path)


def stats(folder):
    def record(name, self_us):
        numbers = [(8, self_us), (14, 5.5)]
        real = b"".join(bytes([n << 3 | 1]) + struct.pack("<d", v) for n, v in numbers)
        return message((1, 1), (2, "Device"), (3, "Conv2D"), (4, name), (5, 32)) + real

    table = message((1, record("conv1", 10.0)), (1, record("conv2", 250.5)))
    path = folder / "host.tensorflow_stats.pb"
    path.write_bytes(message((4, table), (5, table)))
    return path


def test_operations_of_tensorflow_most_time_first(tmp_path):
    (table,) = load(stats(tmp_path)).summaries
    assert table.rows[0] == ("conv2", "Conv2D", "Device", "32", "250.5", "5.5", "", "")
    assert [row[0] for row in table.rows] == ["conv2", "conv1"]


def test_a_damaged_table_of_tensorflow_is_one_clear_error(tmp_path):
    path = stats(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UnreadableFile, match="damaged"):
        load(path)
