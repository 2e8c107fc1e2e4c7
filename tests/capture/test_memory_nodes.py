"""Where threads and memory of a process are, from made-up folders of a machine with two nodes."""

import os

import pytest

from pinchpoint.capture.samples.memory_nodes import cpu_nodes, placement

MAPS = """\
55d0 default file=/usr/bin/python3 mapped=9 N0=9 kernelpagesize_kB=4
55d1 default heap anon=30 dirty=30 N0=10 N1=20 kernelpagesize_kB=4
7f00 bind:1 anon=2 dirty=2 N1=2 kernelpagesize_kB=2048
7f01 default file=/usr/lib/libc.so anon=1 dirty=1 N0=1 kernelpagesize_kB=4
7ffc default stack anon=3 dirty=3 N0=3 kernelpagesize_kB=4
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Two nodes of two cores; a thread is bound to the first, one may run anywhere and ran on 3."""
    nodes, process = tmp_path / "node", tmp_path / "self"
    for node, cores, far in ((0, "0-1", "10 21"), (1, "2,3", "21 10")):
        place = nodes / f"node{node}"
        place.mkdir(parents=True)
        (place / "cpulist").write_text(cores + "\n")
        (place / "distance").write_text(far + "\n")
    for thread, user, core in ((11, 600, 0), (12, 250, 3)):
        (process / "task" / str(thread)).mkdir(parents=True)
        fields = ["S", *["0"] * 10, str(user), "50", *["0"] * 23, str(core), "0"]
        (process / "task" / str(thread) / "stat").write_text(
            f"{thread} (a name) (so) {' '.join(fields)}\n"
        )
    (process / "numa_maps").write_text(MAPS)
    allowed = {11: {0, 1}, 12: {0, 1, 2, 3}, 0: {1, 2}}
    monkeypatch.setattr(os, "sched_getaffinity", allowed.__getitem__)
    return nodes, process


def test_memory_of_no_file_and_time_of_threads_by_node(machine):
    assert placement(*machine) == {
        "bytes": {"0": 13 * 4096, "1": 20 * 4096 + 2 * 2048 * 1024},
        "cpu_ticks": {"0": 650, "1": 300},
        "pinned_ticks": 650,
        "distances": [[10, 21], [21, 10]],
    }
    assert cpu_nodes(machine[0]) == [0, 1]


def test_one_node_or_no_list_is_nothing_to_tell(machine, tmp_path):
    (machine[0] / "node1/cpulist").write_text("\n")
    assert placement(*machine) is None
    assert cpu_nodes(tmp_path / "nowhere") is None


def test_a_kernel_without_numa_maps_tells_nothing(machine):
    (machine[1] / "numa_maps").unlink()
    assert placement(*machine) is None
