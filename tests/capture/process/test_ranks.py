"""Ranks that record by time agree on the moment."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pinchpoint.capture.process import ranks
from pinchpoint.capture.process.ranks import Identity, begin_together
from pinchpoint.run_folder.layout import PROCESSES


def rank(number, of=2):
    return Identity(number, of, number, "host", number + 1, True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / PROCESSES).mkdir()
    monkeypatch.setattr(ranks, "AHEAD_S", 0.2)
    return tmp_path


def test_all_begin_a_little_after_the_last_is_ready(folder):
    end = threading.Event()

    def ready(number):
        met = begin_together(folder, rank(number), 2, 1, end)
        return met, time.time()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ready, (0, 1))
    words = [float(p.read_text()) for p in (folder / PROCESSES).glob("ready-1.*")]
    assert first[0]
    assert second[0]
    assert min(first[1], second[1]) >= max(words) + 0.2 - 0.01


def test_the_first_one_waits_only_so_long(folder, monkeypatch):
    monkeypatch.setattr(ranks, "PATIENCE_S", 0.1)
    assert not begin_together(folder, rank(0), 2, 1, threading.Event())


def test_words_of_an_earlier_attempt_do_not_count(folder, monkeypatch):
    monkeypatch.setattr(ranks, "PATIENCE_S", 0.1)
    (folder / PROCESSES / "ready-1.1.time").write_text("1.0")
    assert not begin_together(folder, rank(0), 2, 2, threading.Event())


def test_the_end_of_the_program_ends_the_wait(folder):
    end = threading.Event()
    end.set()
    assert not begin_together(folder, rank(0), 2, 1, end)
    asked = iter([False, True])
    assert not begin_together(folder, rank(0), 2, 2, threading.Event(), lambda: next(asked))


def test_a_program_alone_begins_at_once(folder):
    assert begin_together(folder, rank(0, of=1), 1, 1, threading.Event())
    assert list((folder / PROCESSES).iterdir()) == []
