"""A thread ends while its steps are recorded: the program must not end with it."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed")

RECORDED = """
import sys, threading, time
from pathlib import Path
import torch
from pinchpoint.capture.settings import Settings
from pinchpoint.capture.windows.torch import TorchWindow
window = TorchWindow(Settings(sys.argv[1]), Path(sys.argv[1]), "rank0")
recorded = threading.Event()
def record():
    window.open()
    for _ in range(3):
        window.step()
        torch.ones(2) + 1
    recorded.set()
    if sys.argv[2] == "stays":
        time.sleep(100)
thread = threading.Thread(target=record, daemon=True)
thread.start()
recorded.wait()
if sys.argv[2] == "ends":
    thread.join()
closed = window.close()
print(closed.steps, closed.file is not None, closed.problem)
"""


def recorded(folder, how):
    command = [sys.executable, "-c", RECORDED, str(folder), how]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_what_a_thread_has_recorded_by_its_end_is_kept(tmp_path):
    assert recorded(tmp_path, "ends") == "2 True None\n"
    assert len(list(tmp_path.glob("*.trace.json.gz"))) == 1


def test_no_other_thread_ends_the_recording_of_one_that_goes_on(tmp_path):
    said = recorded(tmp_path, "stays")
    assert said.startswith("0 False the program ended while the thread of its steps")
