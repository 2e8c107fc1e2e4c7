"""What the program's user sees on the terminal is the program's own."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed")

# A module whose weights are no leaves, as a target network that was updated in place with
# gradients wanted: torch's tracer of Python reads their .grad where the module is called.
RECORDED = """
import sys
from pathlib import Path
import torch
from pinchpoint.capture.settings import Settings
from pinchpoint.capture.windows.torch import TorchWindow
module = torch.nn.Linear(2, 2).requires_grad_(False)
torch._foreach_lerp_(list(module.parameters()), list(torch.nn.Linear(2, 2).parameters()), 0.5)
assert not module.weight.is_leaf
window = TorchWindow(Settings(sys.argv[1], stacks=True), Path(sys.argv[1]), "rank0")
window.open()
for _ in range(3):
    window.step()
    module(torch.ones(2))
assert window.close().file is not None
"""


def test_a_recording_with_stacks_warns_of_no_gradient_that_the_program_does_not_read(tmp_path):
    command = [sys.executable, "-W", "default", "-c", RECORDED, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "not a leaf" not in ended.stderr


IN_A_THREAD = """
import os, sys, threading
from pathlib import Path
import torch
from pinchpoint.capture.settings import Settings
from pinchpoint.capture.windows.torch import TorchWindow
def record():
    window = TorchWindow(Settings(sys.argv[1]), Path(sys.argv[1]), "rank0")
    window.open()
    os.write(2, b"of the program\\n")
    window.step()
    torch.ones(2) + 1
    window.step()
    assert window.close().file is not None
thread = threading.Thread(target=record)
thread.start()
thread.join()
assert list(Path(sys.argv[1]).glob("*.gz"))
"""


def test_a_recording_from_another_thread_says_nothing_of_the_profilers_client(tmp_path):
    command = [sys.executable, "-c", IN_A_THREAD, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "External init callback" not in ended.stderr
    assert "of the program\n" in ended.stderr
