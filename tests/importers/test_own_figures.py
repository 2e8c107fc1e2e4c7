"""Figures in JSON, JSON lines and CSV of any program: as the file has them, with units it says."""

import json
import tracemalloc

import pytest

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.files.units import unit_of, unit_of_key
from pinchpoint.importers.own_figures import _one_after_the_other

HYPERFINE = {
    "results": [
        {"command": "a", "mean": 0.5, "stddev": 0.1, "times": [0.4, 0.5, 0.6], "exit_codes": [0]},
        {"command": "b", "mean": 0.7, "stddev": 0.2, "times": [0.6, 0.7, 0.8], "exit_codes": [0]},
    ]
}
GOOGLE = {
    "context": {"library_build_type": "release", "num_cpus": 8},
    "benchmarks": [
        {"name": "BM_a", "iterations": 100, "real_time": 5.5, "cpu_time": 5.4, "time_unit": "us"},
        {"name": "BM_b", "iterations": 300, "real_time": 7.5, "cpu_time": 7.4, "time_unit": "us"},
    ],
}
SCRAPE = """# HELP app_request_seconds time
# TYPE app_request_seconds histogram
app_request_seconds_bucket{model="a",le="0.5"} 6
app_request_seconds_bucket{model="a",le="1.0"} 10
app_request_seconds_bucket{model="a",le="+Inf"} 10
app_request_seconds_sum{model="a"} 4
app_request_seconds_count{model="a"} 10
# TYPE app_tokens_total counter
app_tokens_total{model="a"} 500
app_tokens_total{model="b"} 100
"""


def tables(folder, name, content):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    trace = load(path)
    assert trace.source.format == "table of figures"
    return trace.summaries


def columns(table, row):
    return dict(zip(table.columns, table.rows[row], strict=True))


def test_units_are_those_that_texts_spell():
    said = {"msec": "ms", "tok/s": "tokens/s", "s/it": "s/it", "per cent of": "", "": ""}
    assert {text: unit_of(text).name for text in said} == said
    assert unit_of("GiB").scale == 2**30
    said = {
        "letters/s": "letters/s", "GFLOPs/s": "GFLOP/s", "times/s": "s", "loss/s": "s",
        "step_time_ms": "ms", "Latency (us)": "µs", "tokens_per_second": "tokens/s", "req_s":
        "requests/s", "load_s": "s", "gpu util %": "%", "power_w": "W", "elapsedNs": "ns",
        "samples_per_sec_per_gpu": "samples/s/gpu", "throughput_mb_s": "MB/s",
        "dram__bytes_read.sum.per_second": "bytes/s", "dram_bytes_read_per_second": "bytes/s",
        "per_second": "1/s", "clock_khz": "kHz", "mean_step_sec": "s", "epoch_s": "s",
        "steps_sec": "steps/s",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": "%",
        "ttft_ms_median": "ms", "tpot_ms_p99": "ms", "ttft_p99_ms": "ms", "gpu_mem_gb_max": "GB",
        "lat_us_p99.9": "µs", "output_tok_per_s_mean": "tokens/s", "step_s_mean": "s",
    }  # fmt: skip
    assert {key: unit_of_key(key).name for key in said} == said


@pytest.mark.parametrize("key", ["loss", "2GB", "GPUs", "lr_min", "ms", "time_min", "[%ld]", "raw"])
def test_no_unit_is_read_out_of_a_name_that_says_none(key):
    assert unit_of_key(key).name == ""


def test_a_key_with_points_has_the_unit_of_all_of_it(tmp_path):
    document = {"results": {"dram__bytes_read.sum.per_second": 7e10, "step_time_ms": 5}}
    (table,) = tables(tmp_path, "metrics.json", document)
    said = dict(table.rows)
    assert said["results.dram__bytes_read.sum.per_second"] == "7e+10 bytes/s"
    assert said["results.step_time_ms"] == "5 ms"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1.5,2.5,3.5,2.5\n", [("no name", "not said", "4", "2.5", "2.5")]),
        ("step_time_ms\n1.5,2.5,3.5,2.5\n", [("step_time_ms", "ms", "4", "2.5", "2.5")]),
        ("step_time_ms\n1.5\n2.5\n3.5\n2.5\n", [("step_time_ms", "ms", "4", "2.5", "2.5")]),
        (
            "".join(f"/{name},{','.join([a] * 10 + [b] * 10)}\n" for name, a, b in
                    (("read", "1", "3"), ("idle", "0", "0"), ("wait_ms", "20", "40"))),
            [("/read", "not said", "20", "2", "2"), ("/wait_ms", "ms", "20", "30", "30")],
        ),
    ],
)  # fmt: skip
def test_lists_of_numbers_by_their_label(tmp_path, text, found):
    table, *_ = tables(tmp_path, "times.csv", text)
    assert [row[:5] for row in table.rows] == found


def test_a_row_that_is_too_long_for_a_line_is_no_list(tmp_path):
    row = ",".join(["1", "3"] * 10)
    text = f"/read,{row}\n/long,{','.join(['1.5'] * 20_000)}\n" + f"/write,{row}\n" * 30
    table, left = tables(tmp_path, "times.csv", text)
    assert {row[0] for row in table.rows} == {"/read", "/write"}
    assert left.rows == (("lines that are no list", "2"),)  # it and its end


def test_values_beside_the_name_of_their_metric_are_of_that_metric(tmp_path):
    rows = [
        {"metric": ("power_w", "clock_mhz")[n % 2], "value": 100 + n, "labels": {"gpu": "0"}}
        for n in range(24)
    ]
    figures = tables(tmp_path, "metrics.json", rows)[0]
    assert [row[:4] for row in figures.rows] == [
        ("power_w", "W", "12", "111"), ("clock_mhz", "MHz", "12", "112"),
    ]  # fmt: skip


def test_numbers_that_tell_rows_apart_are_not_averaged(tmp_path):
    text = "run_id,rank,done,loss,step_ms\n" + "".join(
        f"{20260700 + n},{n},{n % 2},{n}.5,{2 * n}.5\n" for n in range(12)
    )
    figures = tables(tmp_path, "runs.csv", text)[0]
    assert [row[0] for row in figures.rows] == ["step_ms", "loss"]


def test_rows_of_several_things_come_before_figures_of_all(tmp_path):
    text = "gpu,power_w\n" + "".join(
        f"{('slow', 'fast')[n % 2]},{100 * (1 + n % 2)}\n" for n in range(12)
    )
    first, pooled = tables(tmp_path, "power.csv", text)
    assert first.rows[0] == ("slow", "100")
    assert pooled.rows[0][:5] == ("power_w", "W", "12", "150", "150")


def test_the_manual_of_a_known_tool_says_the_unit(tmp_path):
    (table,) = tables(tmp_path, "hyperfine.json", HYPERFINE)
    assert columns(table, 0) == {"command": "a", "mean (s)": "0.5", "stddev (s)": "0.1"}


def test_a_neighbour_says_the_unit(tmp_path):
    table, _ = tables(tmp_path, "google.json", GOOGLE)
    assert columns(table, 1)["real_time (µs)"] == "7.5"
    assert columns(table, 1)["iterations"] == "300"


def test_records_by_name_and_lists_of_numbers(tmp_path):
    document = {
        "stages": {"load": {"mean_ms": 2.5, "n": 3}, "run": {"mean_ms": 4.5, "n": 3}},
        "latencies_ms": [1.0, 2.0, 6.0],
        "throughput": 12.5,
        "model": "a",
    }
    once, stages, lists = tables(tmp_path, "own.json", document)
    assert columns(stages, 1) == {"name": "run", "mean_ms": "4.5"}  # n is the same in both
    assert lists.rows[0][:5] == ("latencies_ms", "ms", "3", "2", "3")
    assert once.rows == (("throughput", "12.5"),)


def test_what_is_measured_once_comes_before_what_was_set_and_before_tables(tmp_path):
    document = {
        "metadata": {"layers": 36, "device_index": 0},
        "operators": [{"name": f"op{n}", "self_ms": 1.5 * n} for n in range(3)],
        "summary": {"time_to_first_token_ms": 920.2, "tokens_per_second": 11.2},
    }
    once, _ = tables(tmp_path, "own.json", document)
    assert [row[0] for row in once.rows] == [
        "summary.time_to_first_token_ms", "summary.tokens_per_second",
        "metadata.layers", "metadata.device_index",
    ]  # fmt: skip


def test_a_history_of_steps_becomes_figures_of_its_columns(tmp_path):
    history = [{"step": n, "loss": 10.0 - n, "step_time_ms": 5.0} for n in range(10)]
    history[9]["step_time_ms"] = 50.0
    history.append({"step": 9, "eval_loss": 1.5, "eval_runtime": 3.0})
    (table,) = tables(tmp_path, "state.json", {"log_history": history, "is_local": True})
    found = {row[0]: row[1:] for row in table.rows}
    assert found["step_time_ms"][:4] == ("ms", "10", "5", "9.5")
    assert found["loss"][:2] == ("not said", "10")


def test_lines_of_json_and_documents_that_were_appended(tmp_path):
    lines = "".join(json.dumps({"n": n, "step_ms": 2.0 + n}) + "\n" for n in range(12))
    figures, shown, left = tables(tmp_path, "metrics.jsonl", lines + '{"n": 12, "st')
    assert {row[0]: row[3] for row in figures.rows}["step_ms"] == "7.5"
    assert len(shown.rows) == 12
    assert left.rows == (("lines that are no JSON", "1"),)
    appended = json.dumps({"latency_ms": 3.0}, indent=1) + "\n" + json.dumps({"latency_ms": 5.0})
    (both,) = tables(tmp_path, "appended.json", appended)
    assert both.rows == (("3",), ("5",))


def test_records_by_line_are_never_all_held_as_values(tmp_path):
    line = json.dumps({"n": 1, "step_ms": 2.5, "note": "x" * 40})
    text = "".join(line.replace("2.5", f"2.{n}") + "\n" for n in range(20_000))
    (tmp_path / "m.jsonl").write_text(text)
    tracemalloc.start()
    figures, *_ = load(tmp_path / "m.jsonl").summaries
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert figures.rows[0][2] == "20,000"
    assert most < len(text)  # as dictionaries they take five times that


def test_a_table_of_a_program_has_its_columns_and_the_time_between_rows(tmp_path):
    rows = "".join(f"2026-01-02 10:00:{n:02d},{n},{20 + n}.5\n" for n in range(0, 40, 2))
    table = "# a comment\ntime,step,gpu_power_w\n" + rows
    figures, shown, said = tables(tmp_path, "own.csv", table)
    assert {row[0]: row[1:4] for row in figures.rows}["gpu_power_w"] == ("W", "20", "39.5")
    assert len(shown.rows) == 20
    assert dict(said.rows)["between two rows, mean"] == "2 s"


def test_rows_without_names_are_a_table_whose_columns_have_none(tmp_path):
    figures, _ = tables(tmp_path, "own.csv", "".join(f"{n},{n * n}\n" for n in range(12)))
    assert [row[:2] for row in figures.rows] == [("column 1", "not said"), ("column 2", "not said")]


def test_counters_are_sums_since_the_server_began(tmp_path):
    histograms, singles = tables(tmp_path, "metrics.prom", SCRAPE)
    assert histograms.rows == (("app_request_seconds", "s", "10", "0.4", "0.5", "1", "1"),)
    assert singles.rows == (("app_tokens", "counter", "not said", "2", "600", "500"),)


def test_locust_says_milliseconds_in_its_manual(tmp_path):
    head = "Type,Name,Request Count,Median Response Time,Requests/s\n"
    text = f"{head}GET,/a,10,25,3.5\n,Total,20,30,7\n"
    (table,) = tables(tmp_path, "stats.csv", text)
    assert columns(table, 0)["Median Response Time (ms)"] == "25"


@pytest.mark.parametrize(
    "document",
    [
        {"hidden_size": 4096, "num_layers": 32, "dropout": 0.1},
        {"timeout_ms": 500, "max_time": 3},
        [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}],
        [],
        {},
    ],
)
def test_settings_and_texts_are_no_figures(tmp_path, document):
    path = tmp_path / "own.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UnreadableFile) as raised:
        load(path)
    assert raised.value.hint


def test_sentences_with_commas_are_no_table(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text("First, we go, and then\nwe come, back, again\nthat, is, all 3\n")
    with pytest.raises(UnreadableFile):
        load(path)


def test_rows_that_are_quantities_have_no_figures_over_rows(tmp_path):
    head = "Metric,run,run\n[[Result]],,\n"
    rows = "".join(f"Latency p{n} (ms),{n}.5,{n}.7\n" for n in range(10))
    (table,) = tables(tmp_path, "own.csv", f"{head}{rows}Output (tok/s),9.5,8.5\n")
    assert table.columns == ("Metric", "run", "run (3)")
    assert table.rows[-1] == ("Output (tok/s)", "9.5", "8.5")


@pytest.mark.parametrize(
    "text",
    ["[1, 2,\n3] " * 30_000 + "{", '{"a": [1,\n2]}\n' * 30_000],
    ids=["lists", "records"],
)
def test_documents_one_after_the_other_are_each_looked_at_once(tmp_path, text):
    path = tmp_path / "several.json"
    path.write_text(text)
    assert len(_one_after_the_other(path)) == 30_000  # anew from the first, it takes minutes


def test_rows_that_part_a_whole_begin_with_their_share_and_have_no_medians(tmp_path):
    rows = [f"kernel_{n},{n + 1},{10.0 - n},{share},{share * 3}" for n, share in
            enumerate((50, 20, 10, 5, 4, 3, 3, 2, 2, 1))]  # fmt: skip
    path = tmp_path / "kernels.csv"
    path.write_text("\n".join(["name,Count,Mean (us),Percentage (%),Total Time (ms)", *rows]))
    (table,) = load(path).summaries
    assert table.columns == ("name", "Percentage (%)", "Total Time (ms)", "Count", "Mean (us)")
    assert table.rows[0] == ("kernel_0", "50", "150", "1", "10.0")


def test_parts_of_a_program_begin_with_the_longest_in_all(tmp_path):
    rows = [f"kernel_{n},conv,{n % 3},{1000 + 37 * (n * 5 % 13)},{n}" for n in range(13)]
    table, _ = tables(tmp_path, "p.csv", "\n".join(
        ["Kernel Name,Op,Uses,Total GPU Time (ns),Calls", *rows]))  # fmt: skip
    assert table.columns[:2] == ("Kernel Name", "Total GPU Time (ns)")
    assert table.rows[0][:2] == ("kernel_5", "1444")
    assert "largest Total GPU Time (ns) first" in table.title


def test_seconds_since_1970_say_when_rows_were_written(tmp_path):
    rows = [f"{1746556382.5 + n / 2},{n % 7}" for n in range(21)]
    figures, _, said = tables(tmp_path, "p.csv", "\n".join(["timestamp,used", *rows]))
    assert [row[0] for row in figures.rows] == ["used"]
    assert dict(said.rows)["timestamp: first to last row"] == "10 s"


def test_shares_that_are_no_parts_of_one_whole_stay_where_they_are(tmp_path):
    rows = [f"gpu {n},{n},{60 + n}" for n in range(4)]
    path = tmp_path / "use.csv"
    path.write_text("\n".join(["name,latency_ms,use_percent", *rows]))
    assert load(path).summaries[0].columns == ("name", "latency_ms", "use_percent")


def test_a_dispatch_says_how_long_it_took_and_of_which_kernel(tmp_path):
    path = tmp_path / "pmc_perf.csv"
    path.write_text(
        "Dispatch_ID,Kernel_Name,Grid_Size,SQ_WAVES,Start_Timestamp,End_Timestamp\n"
        + "".join(f'{n},"vecCopy(double*, int)",64,{n},{1000 * n},{1000 * n + d}\n'
                  for n, d in enumerate((300, 200, 100)))
    )  # fmt: skip
    table, said = load(path).summaries
    assert table.columns[:2] == ("Dispatch_ID", "Duration (ns)")
    assert [row[1] for row in table.rows] == ["300", "200", "100"]
    assert said.rows == (("Kernel_Name", "vecCopy(double*, int)"),)


def test_lists_within_named_records_and_the_device_are_shown(tmp_path):
    kernels = [
        {"kernel_name": f"k{n}", "calls": n + 1, "pct_of_total": 40.0 - 10 * n, "total_us": 8 - n}
        for n in range(3)
    ]
    one = {"batch_size": 1, "total_ms": 2.5, "top_kernels": kernels}
    path = tmp_path / "analysis.json"
    path.write_text(
        json.dumps(
            {"gpu_info": {"gpu_name": "A100"}, "results": {"a": one, "b": one | {"total_ms": 3.5}}}
        )
    )
    tables = load(path).summaries
    assert [t.title for t in tables[:3]] == ["results", "results.a.top_kernels",
                                             "results.b.top_kernels"]  # fmt: skip
    assert tables[1].columns == ("kernel_name", "pct_of_total", "total_us", "calls")
    assert tables[1].rows[0] == ("k0", "40", "8", "1")
    assert ("gpu_info.gpu_name", "A100") in tables[-1].rows


def test_a_line_within_quotes_is_of_its_cell_though_it_begins_with_a_hash(tmp_path):
    rows = [f'{at},"# A title\n# and a second, of {at}",{at / 10}' for at in range(1, 41)]
    text = "\n".join(["request,answer,latency_sec", *rows, "# a comment"])
    (table, *_) = tables(tmp_path, "requests.csv", text)
    assert columns(table, 0)["rows"] == "40"


def test_the_use_of_devices_is_measured_though_no_unit_is_said(tmp_path):
    lines = [json.dumps({"gpu_usage:0": 10 * at, "gpu_usage:1": 0}) for at in range(1, 5)]
    (table,) = tables(tmp_path, "monitor.jsonl", "\n".join(lines))
    assert table.columns == ("gpu_usage:0",)
    assert table.rows == (("10",), ("20",), ("30",), ("40",))


def test_records_with_the_time_of_each_say_how_far_apart_they_are(tmp_path):
    found = [
        {"i": at, "loss": 1 / (1 + at), "time": 1_661_241_386.0 + at * (0.5 if at < 40 else 1.0)}
        for at in range(60)
    ]
    said = tables(tmp_path, "steps.json", {"iterates": found})
    (times,) = (table for table in said if table.columns[0] == "times of iterates")
    assert dict(times.rows) == {
        "time: first to last record": "59 s",
        "between two records, median": "0.5 s",
        "mean": "1 s",
    }
    later = [*found[1:], found[0]]  # not in the order of time
    assert not any("times of" in t.columns[0] for t in tables(tmp_path, "b.json", {"a": later}))


def test_of_many_columns_times_stand_first(tmp_path):
    sizes = [f"size_{n}_mb" for n in range(14)]
    rows = [
        {
            "model": f"m{n}",
            **{size: n + at for at, size in enumerate(sizes)},
            "block_time_ms": n + 1,
        }
        for n in range(3)
    ]
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({"models": rows}))
    (table,) = (t for t in load(path).summaries if "model" in t.columns)
    assert table.columns[:3] == ("model", "block_time_ms", "size_0_mb")
