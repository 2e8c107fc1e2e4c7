"""Whoever is killed leaves no process behind."""

import os
import select
import subprocess
import sys

import pytest

WORKERS = """
from jobs.rank_workers import quick
from pinchpoint.importers.ranks.files import RankFile
from pinchpoint.jobs import engines

if __name__ == "__main__":
    with engines._pool(2) as pool:
        engines._submitted(pool, quick, RankFile("a.json", 0)).result()
        Path(sys.argv[1]).write_text(" ".join(map(str, pool._processes)))
        sys.stdin.read()
"""
MEASURED = """
from pinchpoint.bench.run.process import run_command

program = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.read(os.pipe()[0], 1)"
if __name__ == "__main__":
    run_command([sys.executable, "-c", program, sys.argv[1]], folder=Path(sys.argv[1]).parent)
"""
LONGEST_S = 60  # so that a failure ends


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux tells it")
@pytest.mark.parametrize("starts", [WORKERS, MEASURED], ids=["workers", "measured"])
def test_who_is_killed_leaves_no_process(starts, tmp_path):
    script, pipe = tmp_path / "starts.py", tmp_path / "pids"
    script.write_text("import sys\nfrom pathlib import Path\n" + starts)
    os.mkfifo(pipe)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.Popen(
        [sys.executable, script, pipe], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    )
    told = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert select.select([told], [], [], LONGEST_S)[0], "it did not start"
    left = [os.pidfd_open(int(pid)) for pid in os.read(told, 1000).split()]
    os.close(told)
    killed.kill()
    killed.communicate()
    assert left
    for descriptor in left:
        assert select.select([descriptor], [], [], LONGEST_S)[0], "it is still there"
        os.close(descriptor)
