"""Lines that differ in their digits only are read as they would be one by one."""

import random

import pytest

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.importers.program_logs import read
from pinchpoint.importers.program_logs.any_figures import AnyFigures

KINDS = (
    "[2026-01-02 10:{m:02d}:{s:02d},{f:03d}] INFO t.py:12 step {i}/9000 loss: {x:.4f} mem 12.3GB",
    "23:{m:02d}:{s:02d} worker-{w}] batch {i} step time {x:.3f}s (data {y:.3f}s)",
    "{{'loss': {x:.4f}, 'epoch': {y:.2f}}}",
    "gpu{w}_util: {p} %, clock {i} MHz",
    "Epoch {w}: latency {q}",
    "took 0m{s}.5s for {i} samples",
    "read {i:,} tokens in {x:.2f} s",
    "name  size  ms",
    "gemm  {i}  {x:.2f}",
    "ValueError: step {i} gave {x:.1f}",
    "Saved model_{i} to /tmp/{w}/model-{i}.pt",
    "",
)


def log(seed):
    rng = random.Random(seed)
    kinds = rng.sample(KINDS, 6)
    for i in range(300):
        yield rng.choice(kinds).format(
            i=i, m=i // 60, s=i % 60, f=rng.randrange(1000), x=rng.random() * 10, y=rng.random(),
            w=rng.randrange(3), p=rng.randrange(101), q=rng.choice((12.5, 1.7e9)),
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_lines_alike_are_read_as_each_alone(tmp_path, monkeypatch, seed):
    path = tmp_path / "a.log"
    path.write_text("\n".join(log(seed)) + "\n")
    alike = read(path)
    taken = []
    monkeypatch.setattr(AnyFigures, "again", lambda self, text: taken.append(text))
    alone = read(path)
    assert alike.summaries == alone.summaries
    assert taken


def test_most_lines_of_a_log_are_like_an_earlier_one(tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    path.write_text("".join(f"step {i:05d} loss: 0.5 time: 0.{i % 7}1 s\n" for i in range(500)))
    each = []
    line = AnyFigures.line
    monkeypatch.setattr(
        AnyFigures, "line", lambda self, text: each.append(text) or line(self, text)
    )
    read(path)
    assert len(each) == 1


def said(tmp_path, text):
    path = tmp_path / "b.log"
    path.write_text(text)
    return {row[0]: row[1:] for table in load(path).summaries for row in table.rows}


def test_figures_that_are_all_equal_are_said(tmp_path):
    rows = said(tmp_path, "mem: 12 GB, latency: 5 ms\n" * 6)
    assert rows["latency"] == ("5 ms (6 lines)",)


def test_sentences_and_printed_dictionaries_are_no_tables(tmp_path):
    lines = [f"Epoch 0, Step {i}, total used time {i}.5 (s), loss is 0.{i + 1}" for i in range(20)]
    assert said(tmp_path, "\n".join(lines))["total used time goes on, from"] == ("0.5 s to 19.5 s",)
    lines = [f"{{'loss': 0.{i + 1}, 'epoch': 0.{i}}}" for i in range(9)]
    assert said(tmp_path, "\n".join(lines))["loss"][0] == "9"


def test_a_number_may_stand_at_once_behind_its_name(tmp_path):
    lines = [f"[batch {i}/99, epoch 1/2]: loss_a:0.{i + 1} t.py:{i} h:80{i}" for i in range(9)]
    assert set(said(tmp_path, "\n".join(lines))) >= {"loss_a", "counted by"}


def test_a_log_without_a_figure_says_its_last_error(tmp_path):
    text = "[2023-06-15 10:50:46] - x - {t.py:79} - INFO - Done\n" * 3
    text += "[2023-06-15 10:50:57] - x - {t.py:227} - ERROR - Failed to train the model!\n"
    with pytest.raises(UnreadableFile, match="its error: Failed to train the model!"):
        said(tmp_path, text)


def test_no_line_is_looked_at_twice_where_no_more_is_kept(monkeypatch):
    figures = AnyFigures()
    monkeypatch.setattr("pinchpoint.importers.program_logs._same_lines._MOST_NUMBERS", 40)
    kept = [n for n in range(50) if _looked_at(figures, n)]
    assert len(kept) == 2  # of 20 numbers each


def _looked_at(figures, n):
    line = " ".join(
        f"k{chr(97 + n % 26)}{chr(97 + n // 26)}{chr(97 + i)}=1.5 ms" for i in range(20)
    )
    figures.line(line)
    if room := figures.has_room():
        figures.remember(line)
    return room


def test_an_empty_line_is_shown_to_no_reader(tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    path.write_text("\n" * 500 + "latency 3.5 ms\n" * 5)
    shown = []
    line = AnyFigures.line
    monkeypatch.setattr(
        AnyFigures, "line", lambda self, text: shown.append(text) or line(self, text)
    )
    read(path)
    assert shown == ["latency 3.5 ms"]
