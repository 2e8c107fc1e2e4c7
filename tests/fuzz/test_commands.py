"""Every command that takes a file, with one thing that is no good one; always the same."""

import subprocess
import sys
from pathlib import Path


def test_no_command_breaks_hangs_or_leaves_anything():
    script = Path(__file__).with_name("commands.py")  # forked from a process that holds little
    done = subprocess.run([sys.executable, script, "--few"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "0 failures" in done.stdout
