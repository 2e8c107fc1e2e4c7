"""Logs of programs that nobody has seen: series, steps, bars, tables, and what went wrong."""

import json

import pytest

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.files.kinds_of_text import kind_of_text
from pinchpoint.importers.program_logs import claims
from pinchpoint.importers.program_logs._quantities import quantities
from pinchpoint.importers.program_logs._stamps import Stamps, said_by


def tables(folder, text):
    path = folder / "own.log"
    path.write_text(text, "utf-8")
    return load(path).summaries


def rows(found, first):
    table = next(table for table in found if table.columns[0] == first)
    return {row[0]: row[1:] for row in table.rows}


def said(text):
    _, rest = Stamps().of(text)
    return {one.key: (one.value, one.unit.name) for one in quantities(said_by(rest))}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "[2026-01-02 12:34:56,789] INFO step 12/100 loss: 2.5 lr=1.0e-04 time: 0.12s mem 9GB",
            {"step": (12, ""), "loss": (2.5, ""), "lr": (1e-4, ""), "time": (0.12, "s"), "mem":
             (9, "GB")},
        ),
        ("iter 10: loss 2.5, time 12.3ms, mfu 2.4%",
         {"iter": (10, ""), "loss": (2.5, ""), "time": (12.3, "ms"), "mfu": (2.4, "%")}),
        (">>> a = CRASH tflops= step=s hbm=2GB mfu=% start=9.5s",
         {"hbm": (2, "GB"), "start": (9.5, "s")}),
        ("{'loss': 2.5, 'grad_norm': 1.25}", {"loss": (2.5, ""), "grad_norm": (1.25, "")}),
        ("Throughput: 1,234.5 images/sec", {"Throughput": (1234.5, "images/s")}),
        ("Step time (ms): 23.4 | Tokens/sec: 12000",
         {"Step time (ms)": (23.4, "ms"), "Tokens/sec": (12000, "tokens/s")}),
        ("Step 100 | 45.6 ms/step | 12.5k tok/s",
         {"Step": (100, ""), "(ms/step)": (45.6, "ms/step"), "(tokens/s)": (12500, "tokens/s")}),
        ("Training took 12.5 seconds.", {"Training took": (12.5, "s")}),
        ("[rank0]: step=12 tokens_per_sec=5.5",
         {"step": (12, ""), "tokens_per_sec": (5.5, "tokens/s")}),
        ("real\t1m2.5s", {"real": (62.5, "s")}),
        ("Training time 1:00:05", {"Training time": (3605, "s")}),
        ("s:12 trl:3.25 lr:0.5", {"s": (12, ""), "trl": (3.25, ""), "lr": (0.5, "")}),
    ],
)  # fmt: skip
def test_a_line_says_what_it_calls_its_numbers(line, found):
    assert said(line) == found


@pytest.mark.parametrize(
    "line",
    [
        "torch==2.1.0 at 127.0.0.1:8000, python3.10, 7B parameters",
        "In the 1980s they were 16 years old, less than 3% of all",
        "/data/run-12/ckpt_100.pt 0x7ffd 3rd",
    ],
)
def test_names_versions_and_prose_are_no_quantities(line):
    assert not any(unit for _, unit in said(line).values())


def trained(steps, each, pause_after=None, pause=0.0):
    """Lines each so many seconds; behind one of them an evaluation of so many more."""
    now, lines = 3600.0, []
    for n in range(steps):
        clock = f"{int(now // 3600):02d}:{int(now // 60) % 60:02d}:{now % 60:06.3f}"
        lines.append(f"{clock} step {10 * n}/1000 loss: {9 - 0.1 * n:.2f}\n")
        now += each
        if n == pause_after:
            lines.append("Saving checkpoint to disk\n")
            now += pause
    return "".join(lines)


def test_steps_are_timed_by_the_stamps_of_lines_that_count(tmp_path):
    found = tables(tmp_path, trained(20, 5.0, pause_after=9, pause=45.0))
    steps = rows(found, "what lines say of steps")
    assert steps["counted by"] == ("step: 0 to 190 of 1,000",)
    assert steps["median"] == ("500 ms",)
    assert steps["time of one by the stamps, mean"] == ("736.8 ms",)  # 140 s of 190 steps
    assert steps["longer than twice the median"] == ("1 of 19 times",)
    assert steps["their excess"] == ("45 s, 32.1 % of all",)
    assert steps["printed within those"] == ("Saving checkpoint to disk (1 ×)",)
    assert rows(found, "value without a unit")["loss"] == ("20", "8.05", "9", "7.1", "7.1", "9")


def test_a_counter_that_goes_on_from_a_checkpoint_has_not_run_what_it_leaps_over(tmp_path):
    lines = [f"01:00:{n:02d}.000 step {n} loss: {9 - 0.1 * n:.2f}\n" for n in range(10)]
    lines.append("01:00:10.000 step 5000 restored loss: 8.0\n")
    lines += [f"01:00:{n:02d}.000 step {4990 + n} loss: {8 - 0.1 * n:.2f}\n" for n in range(11, 20)]
    steps = rows(tables(tmp_path, "".join(lines)), "what lines say of steps")
    assert steps["counted by"] == ("step: 0 to 5,009",)
    assert steps["time of one by the stamps, mean"] == ("1 s",)


def test_stamps_of_whole_seconds_give_no_typical_step_of_less(tmp_path):
    lines = "".join(f"2026-01-02 10:00:{n:02d} step {10 * n} loss 1.{n:02d}\n" for n in range(30))
    steps = rows(tables(tmp_path, lines), "what lines say of steps")
    assert steps["time of one by the stamps, mean"] == ("100 ms",)
    assert steps["median"][0].startswith("not known")
    assert "p95" not in steps


def test_short_stretches_between_whole_seconds_give_no_mean(tmp_path):
    # 20 stretches of 12 steps, each within a second, but for one that crosses into the next
    lines = "".join(
        f"2026-01-02 10:00:{2 * again + (n == 12 and again == 4):02d} Iter: {n}/12 loss {n}.5\n"
        for again in range(20)
        for n in range(1, 13)
    )
    steps = rows(tables(tmp_path, lines), "what lines say of steps")
    # 220 steps in 1 s of stamps, which are right to 1 s for each of the 20 stretches
    assert steps["time of one by the stamps, mean"] == (
        "not known: stamps of 1 s; at most 95.45 ms",
    )


def test_the_time_between_cells_of_a_notebook_is_of_no_step(tmp_path):
    def cell(minute):
        at = f"2026-01-02 10:{minute}"
        lines = [f"{at}:{2 * n:02d},000 Iteration {n} loss 1.{n}\n" for n in range(9)]
        return {"cell_type": "code", "source": [], "outputs": [{"text": lines}]}

    path = tmp_path / "own.ipynb"
    path.write_text(json.dumps({"cells": [cell("00"), cell("30")], "nbformat": 4}))
    steps = rows(load(path).summaries, "what lines say of steps")
    assert steps["time of one by the stamps, mean"] == ("2 s",)
    assert "their excess" not in steps
    (whole,) = (value for what, value in steps.items() if what.startswith("first to last"))
    assert whole == ("32 s",)  # twice 16 s, without the half hour


def test_records_in_lines_of_a_log_are_figures(tmp_path):
    lines = "".join(
        f"{{'loss': {3 - n}.5, 'grad_norm': 0.{n}, 'epoch': 0.0{n}}}\n" for n in range(3)
    )
    end = "{'train_runtime': 9.5, 'train_samples_per_second': 2.0, 'train_loss': 1.25}\n"
    found = tables(tmp_path, lines + end)
    assert rows(found, "value without a unit")["loss"] == ("3", "2.5", "3.5", "1.5", "1.5", "3.5")
    assert rows(found, "at the end of a run")["train loss"] == ("1.25",)


def test_tables_under_headings_are_kept_apart(tmp_path):
    table = "| model | test | t/s |\n| --- | --- | --- |\n| a | pp512 | {} |\n\nbuild: 1\n"
    text = "".join(f"### GPU {n} ONLY ###\n{table.format(100 + n)}" for n in range(2))
    found = tables(tmp_path, text)
    assert [(each.title, each.rows[0][2]) for each in found] == [
        ("GPU 0 ONLY", "100"), ("GPU 1 ONLY", "101"),
    ]  # fmt: skip


def test_a_log_that_counts_without_times_says_so(tmp_path):
    found = tables(tmp_path, "".join(f"Epoch {n} loss {3 - n / 9:.3f}\n" for n in range(9)))
    assert rows(found, "what lines say of steps")["how long one took"][0].startswith("not said")


def test_the_share_of_the_loader_is_that_of_lines_with_both(tmp_path):
    text = "".join(f"iter {n} step_time: 0.4{n} s data_wait: 0.1{n} s\n" for n in range(5))
    found = rows(tables(tmp_path, text), "what lines say of steps")
    assert found["data_wait of step_time"] == ("28.6 %",)  # 0.12 of 0.42


PARTS = (
    "step={0} dataload=1.2 encoder=0.2 forward_total=0.3 loss=0.9{0} backward=0.4 optimizer=0.1\n"
)


def test_the_share_of_the_loader_among_the_parts_of_a_step(tmp_path):
    """A loss may be a value, and what is within the forward pass is in its total."""
    text = "".join(PARTS.format(n) for n in range(5))
    found = rows(tables(tmp_path, text), "what lines say of steps")
    assert found["dataload of its step"] == ("60.0 %, if all have one unit, which no line says",)
    assert found["the step, added up"] == ("dataload, forward_total, backward, optimizer",)


def test_what_is_compiled_is_no_step(tmp_path):
    """As ninja and make print it, before a program that was built for it runs."""
    built = "".join(f"[{n}/9] /usr/bin/nvcc -c k{n}.cu -o k{n}.o\n[ {n}1%] Building CXX object a\n"
                    for n in range(1, 9))  # fmt: skip
    found = tables(tmp_path, built + "load 0.5 s\nload 0.6 s\nload 0.9 s\n")
    assert not [table for table in found if table.columns[0] == "what lines say of steps"]
    assert list(rows(found, "figure")) == ["load"]


def test_one_pass_alone_is_no_step(tmp_path):
    """Of lines without a backward pass, nothing says that the rest is all of a step."""
    text = "".join(PARTS.format(n).replace("backward=0.4 ", "") for n in range(5))
    found = rows(tables(tmp_path, text), "what lines say of steps")
    assert not [name for name in found if "of its step" in name]


def test_an_epoch_lasts_from_its_first_line_to_the_first_of_the_next(tmp_path):
    """Lines of its batches count it, too; what passes between them is of the epoch."""
    lines = [
        (f"2024-05-01 {10 + at // 60}:{at % 60:02d}:00", epoch, batch)
        for epoch in range(5)
        for batch, at in ((0, 12 * epoch), (500, 12 * epoch + 6))
    ]
    text = "".join(f"{when} INFO epoch: {e}, batch_id: {b}, loss: 0.{b}1\n" for when, e, b in lines)
    found = rows(tables(tmp_path, text), "what lines say of steps")
    assert found["counted by"] == ("epoch: 0 to 4",)
    assert found["median"] == ("720 s",)
    assert not [name for name in found if name.startswith("longer")]


def test_bars_count_until_their_last_picture(tmp_path):
    text = "".join(
        f"Epoch {e}: {n}%|##  | {n}/100 [00:{n // 2:02d}<00:10, 2.00it/s, loss=0.{n}]\r"
        for e in (1, 2)
        for n in (20, 60, 100)
    )
    (name, *bar), = rows(tables(tmp_path, text), "progress bar").items()  # fmt: skip
    assert name == "Epoch"
    assert tuple(bar[0]) == ("it", "2", "200", "100", "500", "2")


def test_tables_between_lines_of_a_log(tmp_path):
    text = (
        "ready\n\n| kernel | time (ms) | rate |\n|---|---|---|\n| a | 1.5 | 3 |\n| b | 2.5 | 4 |\n"
        "\nRoutine          Bandwidth (GB/s)\n plain copy      2231.5\n shared copy     2198.4\n"
    )
    found = tables(tmp_path, text)
    assert rows(found, "kernel") == {"a": ("1.5", "3"), "b": ("2.5", "4")}
    assert rows(found, "Routine")["shared copy"] == ("2198.4",)


MLPERF = "".join(
    f':::MLLOG {{"time_ms": {ms}, "event_type": "INTERVAL_{kind}", "key": "epoch_{end}"}}\n'
    for n in (0, 1)
    for ms, kind, end in ((1000 + 5000 * n, "START", "start"), (4000 + 6000 * n, "END", "stop"))
)


def test_intervals_of_mlperf_last_from_start_to_stop(tmp_path):
    assert rows(tables(tmp_path, MLPERF), "interval")["epoch (ms)"][:3] == ("2", "3,500", "3,500")


OOM = """step 1 took 12.5 ms
step 2 took 12.6 ms
step 3 took 12.7 ms
[rank3]: Traceback (most recent call last):
[rank3]:   File "/app/train.py", line 12, in main
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total \
capacity of 79.1 GiB of which 1.25 GiB is free.
"""
HUNG = """10:00:00 step 1 took 12.5 ms
10:00:01 step 2 took 12.5 ms
10:00:02 step 3 took 12.5 ms
[rank1]:[E1130 01:02:03.5 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation \
timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for \
600021 milliseconds before timing out.
"""


def test_what_went_wrong_is_said_with_its_rank_and_place(tmp_path):
    told = "\n".join(row[0] for row in tables(tmp_path, OOM)[-1].rows)
    for words in ("torch.OutOfMemoryError", "of rank: 3", "/app/train.py:12, in main"):
        assert words in told
    assert "memory that lacked: 2.00 GiB" in told
    assert "free then: 1.25 GiB" in told
    hung = "\n".join(row[0] for row in tables(tmp_path, HUNG)[-1].rows)
    assert "collective that did not end: ALLREDUCE, after 600 s (limit 600 s)" in hung


RAISED = """Traceback (most recent call last):
  File "/app/core.py", line 5, in start
ValueError: too little memory is free
"""
HANDLED = """
During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/main.py", line 9, in main
RuntimeError: it did not start
"""
IGNORED = """Exception ignored in: <function Executor.__del__ at 0x7f>
Traceback (most recent call last):
  File "/app/end.py", line 7, in __del__
AttributeError: no attribute 'shutdown'
"""
ELSEWHERE = """Traceback (most recent call last):
  File "/app/main.py", line 9, in main
RuntimeError: Engine failed. See root cause above.
"""


@pytest.mark.parametrize("ended", [HANDLED, IGNORED, IGNORED + ELSEWHERE, HANDLED + ELSEWHERE])
def test_the_cause_of_an_error_is_at_the_root_of_its_chain(tmp_path, ended):
    path = tmp_path / "own.log"
    path.write_text(RAISED + ended, "utf-8")
    with pytest.raises(UnreadableFile, match="error: ValueError: too little memory is free"):
        load(path)


def test_an_error_that_was_overcome_is_not_the_cause_of_a_later_one(tmp_path):
    path = tmp_path / "own.log"
    path.write_text(RAISED + "going on\n" + RAISED.replace("ValueError", "KeyError"), "utf-8")
    with pytest.raises(UnreadableFile, match="error: KeyError: too little"):
        load(path)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("numpy==1.26.0\ntorch==2.1.0\n-e .\npandas>=2\n", "a list of packages"),
        ("import os\n\ndef main():\n    x = 3\n    return x\n", "source code"),
        ("model:\n  size: 3\n  name: a\ntrain:\n  steps: 5\n", "a configuration"),
        ("a.cpp:3:5: warning: unused\nb.cpp:4:1: error: no\n", "a compiler or a build"),
        ("1.5 2.5\n3.5 4.5\n5.5 6.5\n7.5 8.5\n", "numbers without names"),
        ("diff --git a/x b/x\n@@ -1,2 +1,2 @@\n-a\n+b\n", "a difference between two texts"),
    ],
)
def test_a_text_without_figures_is_called_what_it_is(tmp_path, text, what):
    path = tmp_path / "own.txt"
    path.write_text(text)
    with pytest.raises(UnreadableFile, match=what) as raised:
        load(path)
    assert raised.value.hint


@pytest.mark.parametrize("line", ["START 23:19:49", "Start time: 23:19:49", "eta: 0:12:34"])
def test_a_time_of_day_is_no_duration(line):
    assert not said(line)


def test_long_runs_of_digits_and_blanks_are_looked_at_once(tmp_path):
    """Each took half a minute a line: from every digit, and every blank, to the end of them."""
    assert not claims(tmp_path / "long.log", b"9" * 65_536)
    assert claims(tmp_path / "keras.log", b"10/10 - 12s 120ms/step - loss: 0.5")
    assert kind_of_text((b" " * 20_000 + b"x\n") * 4)[0] == "prose"
    assert kind_of_text(b"    int a = 1;\n" * 4)[0] == "source code"


def test_a_unit_may_stand_two_blanks_behind_its_number():
    assert said(" busbw: 40.4910  Gbps") == {"busbw": (40.491, "Gbps")}
    assert said("algo throughput: 41797155891.1 bps") == {"algo throughput": (41797155891.1, "bps")}
