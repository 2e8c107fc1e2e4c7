"""Messages between ranks that are under way when a recording ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pinchpoint.capture.windows.works import Works

torch = pytest.importorskip("torch", reason="torch is not installed")
SOURCE = Path(__file__).parents[2] / "src"

# Each step waits for the messages of the step before. Without ``Works`` the program died of every
# run (torch 2.13): its many small objects are what the writes land in.
LATE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
first = dist.get_rank() == 0
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
begun, objects = [], []
for number in range(150):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    for work in begun:
        work.wait()
    a, b = torch.ones(100), torch.empty(100)
    begun = [dist.isend(a, 1, tag=n) if first else dist.irecv(b, 0, tag=n) for n in range(40)]
    objects.append([{n: str(n)} for n in range(200)])
for work in begun:
    work.wait()
dist.barrier()
print("ended", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch has no gloo")
def test_a_program_that_waits_for_its_messages_in_the_next_step_lives(tmp_path):
    (tmp_path / "late.py").write_text(LATE)
    run = [sys.executable, "-m", "pinchpoint", "run", "-o", "out", "--no-diagnose"]
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "late.py"]
    path = os.pathsep.join((str(SOURCE), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [*run, *ranks],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout.count("ended")) == (0, 2), done.stderr
    assert len(list((tmp_path / "out" / "traces").iterdir())) == 2


class Work:
    over = False

    def is_completed(self):
        return self.over


class Group:
    """A process group, of which a message is told by its tensor."""

    def send(self, tensors, to):
        self.sent = to
        return Work()

    def barrier(self):
        return Work()

    def name(self):
        return "nccl"


@pytest.fixture
def works(monkeypatch):
    class Module:
        ProcessGroup = Group

    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", Module)
    return Works()


def test_a_work_is_under_way_until_it_is_over_or_gone(works):
    theirs = vars(Group)["send"]
    works.watch()
    first, second = (Group().send([torch.ones(1)], 1) for _ in range(2))
    assert works.under_way()
    first.over = True
    assert works.under_way()
    del second
    assert not works.under_way()
    works.leave()
    assert vars(Group)["send"] is theirs


def test_works_of_devices_and_those_begun_before_or_after_are_left_alone(works):
    before = Group().send([torch.ones(1)], 1)
    works.watch()
    on_device = Group().send([torch.ones(1, device="meta")], 1)
    barrier = Group().barrier()
    works.leave()
    after = Group().send([torch.ones(1)], 1)
    assert not works.under_way()
    assert not any(one.over for one in (before, on_device, barrier, after))


def test_what_somebody_has_put_around_a_method_stays(works):
    theirs = vars(Group)["send"]
    works.watch()
    ours = vars(Group)["send"]
    try:
        Group.send = other = lambda self, *given: ours(self, *given)
        works.leave()
        assert vars(Group)["send"] is other
    finally:
        Group.send = theirs


def test_many_works_are_let_go_as_they_end(works):
    works.watch()
    for _ in range(2000):
        Group().send([torch.ones(1)], 1)  # gone at once
    works.leave()
    assert len(works._begun) < 300
    assert not works.under_way()


def test_a_work_that_is_kept_is_never_freed(works):
    works.watch()
    work = Group().send([torch.ones(1)], 1)
    works.leave()
    before = sys.getrefcount(work)
    assert works.under_way()
    works.keep()
    assert sys.getrefcount(work) == before + 1
    assert not works.under_way()
