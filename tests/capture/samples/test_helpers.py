import subprocess
import sys
from types import SimpleNamespace

import pytest

from pinchpoint.capture.samples import usage, whole_run, worker


@pytest.mark.parametrize(
    ("line", "helps"),
    [
        (["python", "-c", "from multiprocessing.spawn import spawn_main; …"], True),
        (["python", "-c", "…", "--multiprocessing-fork"], True),
        (["python", "-c", "from multiprocessing.resource_tracker import main;main(5)"], True),
        (["python", "train.py", "--workers", "2"], False),
    ],
)
def test_helpers_are_known_before_they_have_imported_the_program(monkeypatch, line, helps):
    monkeypatch.setattr(sys, "orig_argv", line)
    assert whole_run._is_helper() is helps


def test_started_processes_are_counted_but_for_those_of_loaders(monkeypatch, tmp_path):
    class BaseProcess:
        def __init__(self, target):
            self._target = target

        def start(self):
            return "started"

        def _bootstrap(self):
            return 0

    monkeypatch.setattr(usage, "_starts_ns", type(usage._starts_ns)())
    worker.watch_pools(SimpleNamespace(BaseProcess=BaseProcess), tmp_path, lambda: True)
    of_loader = SimpleNamespace(__module__="torch.utils.data._utils.worker")
    for target in (subprocess.run, None, of_loader):
        assert BaseProcess(target).start() == "started"
    assert usage.usage()["processes_started"] == 2
    assert usage.usage()["starts_ns"] >= 0
