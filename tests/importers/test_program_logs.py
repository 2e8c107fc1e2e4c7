"""Figures of logs: what programs print while they run, and what they print at their end."""

import gzip
import json
import tarfile

import pytest

from pinchpoint.cli import main
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.open import format_of

START = "\x1b[1;36m(APIServer pid=1)\x1b[0;0m INFO 10-14 19:28:00 [api_server.py:9] started\n"


def vllm(prompt, generated, running, waiting=0, kv=50.0):
    return (
        f"(APIServer pid=1) INFO 10-14 19:28:10 [loggers.py:127] Engine 000: Avg prompt throughput:"
        f" {prompt} tokens/s, Avg generation throughput: {generated} tokens/s, Running: {running}"
        f" reqs, Waiting: {waiting} reqs, GPU KV cache usage: {kv}%, Prefix cache hit rate: 40.0%\n"
    )


SERVED = START + vllm(100.0, 200.0, 4) + vllm(0.0, 300.0, 6, waiting=2) + vllm(0.0, 0.0, 0)
SGLANG = "".join(
    f"[2026-02-06 12:25:38 DP{n} TP{n}] Decode batch. #running-req: {8 * n}, #token: 99,"
    f" token usage: 0.5{n}, cuda graph: {n == 1}, gen throughput (token/s): {100 * n},"
    " #queue-req: 0\n"
    for n in (1, 2)
)
HEADER = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
WHOLE = "  16777216  4194304  float  sum  -1  128.3  130.79  130.70  0  127.0  132.1  132.0  0\n"
SPLIT = (
    """# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid  1 on n0 device  0 [0000:17:00] NVIDIA A100
#  Rank  1 Group  0 Pid  1 on n0 device  1 [0000:65:00] NVIDIA A100
n0:1:1 [0] NCCL INFO NCCL version 2.27.7+cuda13.0
n0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
"""
    + HEADER
    + """     8388608   2097152  float  sum   -1n0:1:1 [0] NCCL INFO AllReduce: opCount 0 x
    83.33  100.66  100.60      0n0:1:1 [1] NCCL INFO AllReduce: opCount 0 sendbuff 0x7
    80.98  103.59  103.50      0
"""
    + WHOLE
    + """# Out of bounds values : 0 OK
# Avg bus bandwidth    : 117.2
"""
)
LLAMA = """ggml_vulkan: Found 1 Vulkan devices:
ggml_vulkan: 0 = AMD Radeon RX 7900 XTX (RADV NAVI31) (radv) | uma: 0 | fp16: 1
| model         |     size | backend | ngl |  test |            t/s |
| ------------- | -------: | ------- | --: | ----: | -------------: |
| llama 7B Q4_0 | 3.56 GiB | Vulkan  | 100 | pp512 | 758.55 ± 12.18 |
| llama 7B Q4_0 | 3.56 GiB | Vulkan  | 100 | tg128 |   86.29 ± 0.09 |

build: 34ce48d97 (7356)
"""
LIGHTNING = """FIT Profiler Report

-----------------------------------------------------------------
|  Action              |  Mean duration (s) |  Num calls | Total |
-----------------------------------------------------------------
|  run_training_batch  |  0.41              |  1465      | 607   |
|  train_dataloader    |  0.32              |  1465      | 469   |
-----------------------------------------------------------------
"""
SUMMARY = """[01/02/2024-10:00:00] [I] === Performance summary ===
[01/02/2024-10:00:00] [I] Throughput: 203.4 qps
[01/02/2024-10:00:00] [I] Latency: min = 4.9 ms, max = 5.4 ms, mean = 5.0 ms, median = 5.1 ms
[01/02/2024-10:00:00] [I] Total GPU Compute Time: 2.9 s
"""
LOAD = """============ Serving Benchmark Result ============
Successful requests:                     1000
Request throughput (req/s):              80.0
---------------Time to First Token----------------
Mean TTFT (ms):                          120.5
==================================================
after: the end
"""
TRTLLM = """[TensorRT-LLM] TensorRT-LLM version: 0.16.0
===========================================================
= PERFORMANCE OVERVIEW
===========================================================
Number of requests:\t\t7500
Token Throughput (tokens/sec):\t3575.3588

===========================================================
"""
IMAGENET = "".join(
    f"Epoch: [0][{n:5d}/5005]\tTime  0.3{n:02d} ( 0.541)\tData  0.2{n:02d} ( 0.200)\tLoss 6.9\n"
    for n in range(3)
)


ENDING = """Throughput: 5.61 requests/s, 2345.12 total tokens/s, 1172.00 output tokens/s
{'train_runtime': 123.4, 'train_samples_per_second': 5.1, 'train_steps_per_second': 0.6}
Output throughput: 263.489 token/s
"""
OPERATORS = """------------  ------------  ------------  ------------
        Name      Self CPU     Self CUDA    # of Calls
------------  ------------  ------------  ------------
    aten::mm         1.3ms      10.155ms            91
------------  ------------  ------------  ------------
Self CPU time total: 36.116ms
"""
ALL = "".join((SERVED, SGLANG, SPLIT, LLAMA, LIGHTNING, SUMMARY, LOAD, TRTLLM, IMAGENET, ENDING))
ALL += OPERATORS


def tables(folder, text, name="program.log"):
    path = folder / name
    path.write_text(text, "utf-8")
    return load(path).summaries


def rows(table):
    return {row[0]: row[1:] for row in table.rows}


def test_one_log_may_hold_all_of_it(tmp_path):
    found = tables(tmp_path, ALL)
    assert len(found) == 17
    assert all(len(row) == len(table.columns) for table in found for row in table.rows)


def test_a_server_counts_only_while_it_has_work(tmp_path, capsys):
    engine, counted = tables(tmp_path, SERVED)
    assert engine.columns == ("figure of a line", "lines", "median", "mean", "min", "max")
    found = rows(engine)
    assert found["generated tokens/s"] == ("2", "250", "250", "200", "300")
    assert found["requests waiting"] == ("2", "1", "1", "0", "2")
    assert rows(counted) == {"intervals of vLLM without work": ("1",)}
    assert main(["diagnose", str(tmp_path / "program.log")]) == 0
    assert "generated tokens/s" in capsys.readouterr().out


def test_sglang_by_batch_and_which_ran_without_a_graph(tmp_path):
    decode, counted = tables(tmp_path, SGLANG)
    assert rows(decode)["generated tokens/s"] == ("2", "150", "150", "100", "200")
    assert rows(counted)["decode batches without a graph"] == ("1 of 2",)
    assert rows(counted)["ranks that log, each its own lines"] == ("2",)


def test_sizes_are_found_where_other_lines_stand_within_their_rows(tmp_path):
    sizes, all_sizes, nccl = tables(tmp_path, SPLIT)
    assert sizes.title == "sizes of all_reduce_perf of 2 ranks"
    assert sizes.rows == (
        ("16,777,216", "float", "128.3", "130.79", "130.70", "127.0", "132.0"),
        ("8,388,608", "float", "83.33", "100.66", "100.60", "80.98", "103.50"),
    )
    assert rows(all_sizes)["mean GB/s on the bus"] == ("117.2",)
    assert rows(nccl)["channels go through"] == ("P2P/CUMEM (1 ×)",)


@pytest.mark.parametrize(
    ("text", "title", "first", "row"),
    [
        (
            LLAMA,
            "on AMD Radeon RX 7900 XTX",
            ("model", "test", "t/s", "size", "backend", "ngl"),
            ("llama 7B Q4_0", "pp512", "758.55 ± 12.18", "3.56 GiB", "Vulkan", "100"),
        ),
        (
            LIGHTNING,
            "",
            ("Action", "Mean duration (s)", "Num calls", "Total"),
            ("run_training_batch", "0.41", "1465", "607"),
        ),
        (LOAD, "", ("serving benchmark result", "value"), ("Request throughput (req/s)", "80.0")),
        (
            TRTLLM,
            "",
            ("performance overview", "value"),
            ("Token Throughput (tokens/sec)", "3575.3588"),
        ),
        (
            IMAGENET,
            "steps, as the program prints them",
            ("figure of a line", "lines", "median", "mean", "min", "max"),
            ("step (ms)", "3", "301", "301", "300", "302"),
        ),
    ],
)
def test_what_benchmarks_and_training_print(tmp_path, text, title, first, row):
    found = tables(tmp_path, "what a program said before\n" * 500 + text)[0]
    assert (found.title, found.columns, found.rows[0]) == (title, first, row)


def test_latencies_of_a_load_test_are_a_row_each_and_its_rates_come_first(tmp_path):
    said = "".join(f"Mean {x} (ms): 1.5\nP99 {x} (ms): 9.5\n" for x in ("TTFT", "TPOT"))
    text = LOAD.replace("---\nMean TTFT", f"---\n{said}Mean E2E", 1)
    result, latencies = tables(tmp_path, text)[:2]
    assert result.rows[0] == ("Request throughput (req/s)", "80.0")
    assert rows(result)["Mean E2E (ms)"] == ("120.5",)  # one figure is no row of several
    assert latencies.columns == ("latency", "mean", "p99")
    assert latencies.rows == (("TTFT (ms)", "1.5", "9.5"), ("TPOT (ms)", "1.5", "9.5"))


CPROFILE = """warning: nothing
         150 function calls (140 primitive calls) in 2.000 seconds

   Ordered by: cumulative time

   ncalls  tottime  percall  cumtime  percall filename:lineno(function)
     10/1    0.500    0.050    2.000    2.000 train.py:5(step)
      100    1.500    0.015    1.500    0.015 {built-in method posix.read}

accuracy: 0.5
"""
LINES = """Timer unit: 1e-06 s

Total time: 2.5 s
File: /home/a/net.py
Function: backward at line 7

Line #      Hits         Time  Per Hit   % Time  Line Contents
==============================================================
     7                                           @profile
     9       100     500000.0   5000.0     20.0      a = b[0]
    10       100    2000000.0  20000.0     80.0      for i in a:

"""


def test_functions_of_cprofile_by_their_own_time(tmp_path):
    functions, said = tables(tmp_path, CPROFILE)[:2]
    assert functions.rows == (
        ("{built-in method posix.read}", "75.0 %", "1.500", "1.500", "100"),
        ("train.py:5(step)", "25.0 %", "0.500", "2.000", "10/1"),
    )
    assert rows(said)["function calls"] == ("150 in 2.000 s",)


def test_lines_of_line_profiler_in_seconds(tmp_path):
    lines, said = tables(tmp_path, LINES)
    assert lines.rows == (
        ("for i in a:", "net.py:10", "80.0 %", "2", "backward", "100"),
        ("a = b[0]", "net.py:9", "20.0 %", "0.5", "backward", "100"),
    )
    assert "pinchpoint run" in rows(said)["to see what a device did"][0]


def test_a_total_time_of_another_program_stays_its_own(tmp_path):
    found = tables(tmp_path, "Total time: 2.5 s\nloss 0.5 time 0.25 s\n" * 3)
    assert any("Total time" in row[0] for table in found for row in table.rows)


def test_flops_of_deepspeed_say_what_an_iteration_took(tmp_path):
    text = "--- DeepSpeed Flops Profiler ---\nfwd latency:   372.35 ms\niter latency:   1.08 s  \n"
    assert rows(tables(tmp_path, text)[0])["iter latency"] == ("1.08 s",)


def test_a_load_test_ends_with_its_rule(tmp_path):
    assert "after" not in rows(tables(tmp_path, LOAD)[0])


def test_the_summary_of_trtexec(tmp_path):
    times, said = tables(tmp_path, SUMMARY)
    assert times.rows == (("Latency (ms)", "4.9", "5.4", "5.0", "5.1", "", "", ""),)
    assert rows(said)["Throughput"] == ("203.4 qps",)


def columns_of(widths, *rows, left=False):
    """As PyTorch prints: two spaces between columns, rules above and below the header."""
    rule = "  ".join("-" * width for width in widths)
    lines = [
        "  ".join(
            cell.ljust(w) if left else cell.rjust(w) for cell, w in zip(row, widths, strict=True)
        )
        for row in rows
    ]
    return "\n".join([rule, lines[0], rule, *lines[1:], rule, ""])


def test_a_table_of_operators_shows_the_device_first(tmp_path):
    printed = columns_of(
        (24, 12, 12, 12, 12, 12, 12, 12),
        (
            "Name",
            "Self CPU %",
            "Self CPU",
            "CPU total",
            "Self XPU",
            "Self XPU %",
            "XPU total",
            "# of Calls",
        ),
        ("aten::mm", "3.66%", "1.322s", "4.589s", "10.155s", "38.89%", "13.633s", "7291"),
        ("aten::add", "1.14%", "410.135ms", "2.094s", "728.131ms", "2.79%", "984ms", "26155"),
    )
    text = f"epoch 1\n{printed}Self CPU time total: 36.116s\nSelf XPU time total: 26.111s\n"
    table, said = tables(tmp_path, text)
    assert table.columns[:4] == ("Name", "Self XPU", "Self XPU %", "XPU total")
    assert table.rows[0][:4] == ("aten::mm", "10.155s", "38.89%", "13.633s")
    assert len(table.rows) == 2
    assert rows(said)["Self XPU time total"] == ("26.111s",)


def test_a_table_of_operators_that_windows_wrote_is_read(tmp_path):
    printed = columns_of((12, 12, 12), ("Name", "Self CPU", "# of Calls"), ("aten::mm", "2ms", "9"))
    (table,) = [t for t in tables(tmp_path, printed.replace("\n", "\r\n")) if len(t.columns) > 2]
    assert table.rows == (("aten::mm", "2ms", "9"),)


def test_a_build_of_an_engine_answers_no_requests(tmp_path):
    text = "/src/vllm/setup.py: built\n" + "-- Wheel done (20.2s)\n-- Copy done (0.3s)\n"
    assert not [t for t in tables(tmp_path, text) if t.columns[0] == "a log of vLLM"]


def test_a_table_that_somebody_edited_is_read(tmp_path):
    """Its columns are not below its rules any more."""
    text = """-------  -----  ------
Name     Self CPU     Self CUDA  # of Calls
-------  -----  ------
aten::mm   1.3ms    10.155ms      91
std::enable_if<!(false)2.1ms     5.0ms  12
-------  -----  ------
"""
    table = tables(tmp_path, text)[0]
    assert (
        table.rows
        == (
            ("aten::mm", "10.155ms", "1.3ms", "91"),
            ("std::enable_if<!(false)2.1ms", "5.0ms", "12"),
        )[:1]
    )


def test_requests_of_llama_cpp(tmp_path):
    text = """load_backend: loaded BLAS backend from /lib/libggml-blas.so
prompt eval time =    2957.35 ms /   139 tokens (   21.28 ms per token,    47.00 tokens per second)
       eval time =     697.16 ms /    57 tokens (   12.23 ms per token,    81.76 tokens per second)
llama_print_timings: prompt eval time = 10.00 ms / 1 tokens ( 1 ms, 53.00 tokens per second)
"""
    (table,) = tables(tmp_path, text)
    assert rows(table)["prompt tokens/s"] == ("2", "50", "50", "47", "53")
    assert rows(table)["generated tokens"] == ("1", "57", "57", "57", "57")


def test_tables_of_older_versions_are_read(tmp_path):
    old = columns_of(
        (20, 15, 15, 15),
        ("Name", "Self CPU total %", "CPU total", "Number of Calls"),
        ("addmm", "32.32%", "549.362us", "1"),
        left=True,
    )
    table, _ = tables(tmp_path, old + old)[::2]
    # the header is a letter wider than its column
    assert table.columns == ("Name", "CPU total", "Number of Calls", "Self CPU total %")
    assert table.rows == (("addmm", "549.362us", "1", "32.32%"),)


def test_what_programs_say_at_their_end(tmp_path):
    (said,) = tables(tmp_path, ENDING)
    assert said.rows == (
        ("requests/s", "5.61"),
        ("tokens/s", "2345.12"),
        ("output tokens/s", "1172.00"),
        ("train runtime (s)", "123.4"),
        ("train samples/s", "5.1"),
        ("train steps/s", "0.6"),
        ("output tokens/s", "263.489"),
    )


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("1875/1875 [====] - 5s 4ms/step - loss: 0.2", {"step (ms)": "4"}),
        ("[  12.3] Step Time : 14.19s GPU: 1263.4MODEL_TFLOP/s/GPU", {"step (ms)": "14,190"}),
        (
            "Speed: 0.2ms preprocess, 1.3ms inference, 0.0ms loss, 0.5ms postprocess per image",
            {"preprocess (ms)": "0.2", "inference (ms)": "1.3", "postprocess (ms)": "0.5"},
        ),
        ("    throughput/device/tokens_per_second=50,032", {"device/tokens/s": "50,032"}),
        ("{'loss': 1.5, 'samples_per_sec': 12.5, 'x': 1}", {"samples/s": "12.5"}),
        ("iter 10: loss 2.3, time 123.45ms, mfu 20.1%", {"step (ms)": "123.5"}),
        (
            "Epoch(train) [1][ 50/99] lr: 0.1 eta: 0:01 time: 0.30  data_time: 0.02 memory: 9",
            {"step (ms)": "300", "waiting for data (ms)": "20"},
        ),
    ],
)
def test_steps_of_many_programs(tmp_path, line, found):
    steps, *_ = tables(tmp_path, f"{line}\n")
    held = {row[0]: row[2] for row in steps.rows}
    assert {name: held[name] for name in found} == found


def test_a_log_in_an_archive_is_found_by_what_it_says_late(tmp_path):
    log = tmp_path / "decode-0.log"
    log.write_text("Collecting a package\n" * 5000 + SGLANG)
    packed = tmp_path / "logs.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(log, "job/decode-0.log")
    assert rows(load(packed).summaries[0])["generated tokens/s"][0] == "2"
    assert format_of(log) == "program log"


def test_a_log_that_is_packed_is_looked_at_to_its_end(tmp_path):
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress(b"Collecting a package\n" * 5000 + SERVED.encode()))
    assert "generated tokens/s" in rows(load(path).summaries[0])


def test_a_log_that_ends_with_an_error_says_it(tmp_path):
    error = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    told = tables(tmp_path, f"{SERVED}ERROR: {error}\n")[-1]
    assert "".join(row[0] for row in told.rows) == f"first error: {error}".replace(
        "EngineCore en", "EngineCore  en"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (START + "ValueError: no memory is left\n", "a log of vLLM.*ValueError: no memory is left"),
        (
            "[TRT-LLM] [I] up\nSignal: Segmentation fault (11)\na.CancelledError: by itself\n",
            "TensorRT-LLM.*Segmentation fault",
        ),
        ("ggml_cuda_init: found 1 ROCm devices:\nx.cu:97: ROCm error\n", "llama.cpp.*ROCm error"),
    ],
)
def test_one_without_figures_is_refused_with_how_it_ended(tmp_path, text, said):
    with pytest.raises(UnreadableFile, match=said):
        tables(tmp_path, text)


def test_a_log_of_a_program_that_was_recorded_leads_to_the_recording(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("start\n" * 1000 + SERVED + "Generated:\n    /data/report1.nsys-rep\n")
    with pytest.raises(UnreadableFile) as error:
        load(path)
    assert "/data/report1.nsys-rep" in error.value.hint


def notebook(folder, printed, code="", shown=False):
    output = {"data": {"text/plain": [printed]}} if shown else {"text": [printed]}
    cell = {"cell_type": "code", "source": [code], "outputs": [output]}
    path = folder / "a.ipynb"
    path.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4}))
    return path


@pytest.mark.parametrize("shown", [True, False])
def test_what_a_notebook_printed_is_a_log(tmp_path, shown):
    (table,) = load(notebook(tmp_path, LOAD, shown=shown)).summaries
    assert rows(table)["Mean TTFT (ms)"] == ("120.5",)


def test_a_notebook_without_figures_leads_to_what_it_records_to(tmp_path):
    path = notebook(
        tmp_path, "  Name    Self CPU %   Self CPU\n", 'prof.export_chrome_trace("t.json")'
    )
    with pytest.raises(UnreadableFile, match="shows sums by operator") as error:
        load(path)
    assert error.value.hint.endswith("t.json")


@pytest.mark.parametrize(
    "line", ["=" * 200_000, "| model " * 40_000, "Channel x via " * 20_000, "1" * 200_000]
)
def test_lines_that_would_make_a_pattern_go_back_and_back(tmp_path, line):
    path = tmp_path / "hostile.log"
    path.write_text(f"NCCL INFO {HEADER}{line}\nNCCL INFO NCCL version 2.1\n")
    assert rows(load(path).summaries[0])["version"] == ("2.1",)  # it ends at all


def test_latencies_of_ever_other_figures_are_rows(tmp_path):
    """A column each would be a table of as many cells as the square of the lines."""
    lines = "".join(f"P{n % 90 + 1}.{n} of {n // 2} (ms): {n}\n" for n in range(200))
    said, latencies = tables(tmp_path, LOAD.replace("Mean TTFT", lines + "Mean TTFT"))
    assert len(latencies.columns) == 17
    assert len(said.rows) + 2 * len(latencies.rows) == 200 + 3


def test_times_that_are_none_are_the_last_of_operators(tmp_path):
    row = OPERATORS.splitlines()[3]
    text = OPERATORS.replace(row, f"{row.replace('10.155ms', '   ...ms')}\n{row}")
    assert [one[1] for one in tables(tmp_path, text)[0].rows] == ["10.155ms", "...ms"]


def test_nvbandwidth_in_the_unit_of_each_test(tmp_path):
    text = (
        "nvbandwidth Version: v0.6\nBuilt from Git version: v0.6\n\nRunning a_to_b_ce.\n"
        "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n           0         1\n"
        " 0    300.00    100.00\n\nSUM a_to_b_ce 400.00\n\nRunning latency_sm.\n"
        "memory latency SM CPU(row) <-> GPU(column) (ns)\n           0\n 0    700.5\n\n"
        "SUM latency_sm 700.5\n"
    )
    (table,) = (t for t in tables(tmp_path, text) if t.columns[0] == "test")
    assert table.rows == (("a_to_b_ce", "400.00", "GB/s"), ("latency_sm", "700.5", "ns"))


def test_networks_of_benchncnn(tmp_path):
    text = (
        "loop_count = 4\nnum_threads = 2\ncooling_down = 1\n"
        "          squeezenet  min =    4.00  max =    6.00  avg =    5.00\n"
        "  vision_transformer  min = 2000.10  max = 2200.30  avg = 2100.20\n"
    )
    (table,) = tables(tmp_path, text)
    assert table.columns == ("network", "mean (ms)", "least (ms)", "most (ms)")
    assert table.rows[1] == ("vision_transformer", "2100.20", "2000.10", "2200.30")


def test_parts_of_an_older_trtexec_are_kept_apart(tmp_path):
    line = "[01/02/2021-09:17:09] [I] "
    text = "".join(
        f"{line}{part}\n{line}min: {least} ms (end to end 1.0 ms)\n{line}max: 9 ms\n"
        f"{line}percentile: 8 ms at 99% (end to end 1.0 ms at 99%)\n"
        for part, least in (("Host Latency", 0.6), ("GPU Compute", 0.5))
    )
    found = next(t for t in tables(tmp_path, text) if t.title == "trtexec")
    assert found.columns == ("what", "min", "max", "percentile (99%)")
    assert found.rows == (("Host Latency (ms)", "0.6", "9", "8"),
                          ("GPU Compute (ms)", "0.5", "9", "8"))  # fmt: skip


def test_the_table_of_an_older_lightning_has_its_actions(tmp_path):
    text = (
        "FIT Profiler Report\n\n"
        "Action              \t|  Mean duration (s)\t|Num calls  \t|  Total time (s) \t|\n"
        f"{'-' * 80}\n"
        "Total               \t|  -              \t|_          \t|  5.5            \t|\n"
        f"{'-' * 80}\n"
        "run_training_batch  \t|  0.5            \t|10         \t|  5.0            \t|\n"
    )
    (table,) = tables(tmp_path, text)
    assert table.columns[0] == "Action"
    assert rows(table)["run_training_batch"] == ("0.5", "10", "5.0")


def test_a_log_of_vllm_in_debug_is_one_of_vllm(tmp_path):
    text = "DEBUG 10-30 11:43:56.082 [core.py:728] EngineCore waiting for work.\n" * 40
    with pytest.raises(UnreadableFile, match="a log of vLLM"):
        tables(tmp_path, text)
