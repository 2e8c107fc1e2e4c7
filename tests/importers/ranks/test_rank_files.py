import gzip
import json
import shlex
from pathlib import Path

import pytest

from pinchpoint.errors import UnreadableFile, UsageError
from pinchpoint.importers.ranks.files import (
    command_for_all_ranks,
    find_rank_files,
    groups_in,
    rank_in_name,
    several_ranks,
)


@pytest.mark.parametrize(
    ("path", "rank", "label"),
    [
        ("profiling/traces/iteration_100/rank12_trace.json.gz", 12, "rank 12"),  # torchtitan
        ("profiling_outputs/iteration_8/rank3_trace.json", 3, "rank 3"),  # torchtune
        ("torch_profile/rank-7.json.gz", 7, "rank 7"),  # Megatron
        ("hta/rank_0.json.gz", 0, "rank 0"),
        ("traces/rank00003of00016.node-1.4711.trace.json.gz", 3, "rank 3"),  # pinchpoint run
        ("dp0_pp0_tp1_ep0_rank1.1718000000000.pt.trace.json.gz", 1, "DP-0-PP-0-TP-1-EP-0"),
        ("a/rank5/host_99.1718000000000.pt.trace.json", 5, "rank 5"),
        ("worker2.1718000000000.pt.trace.json.gz", 2, "rank 2"),
        ("c1_straggler_rank.slow.rank1.json.gz", 1, "rank 1"),
        ("1718000000.12-TP-3-DP-0-PP-0-EP-0.trace.json.gz", None, "TP-3-DP-0-PP-0-EP-0"),  # SGLang
        ("host_4711.1718000000000000000.pt.trace.json", None, ""),  # tensorboard_trace_handler
        ("frank2.json", None, ""),
    ],
)  # fmt: skip
def test_names(path, rank, label):
    found = rank_in_name(path)
    assert (found.rank, found.label) == (rank, label)


def write(folder, *names, text="[]"):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def ranks(found):
    return [f.rank for f in found.files]


def test_a_folder_in_order_of_ranks(tmp_path):
    write(tmp_path, *(f"rank-{i}.json.gz" for i in (10, 2, 0)))
    assert ranks(find_rank_files([tmp_path])) == [0, 2, 10]


def test_of_the_two_files_of_a_jax_recording_the_xplane_is_taken(tmp_path):
    profile = "rank00001of00002.host.7.jax/plugins/profile/2026_01_01_00_00_00"
    write(tmp_path, f"{profile}/host.xplane.pb", f"{profile}/host.trace.json.gz")
    write(tmp_path, "rank00000of00002.host.6.trace.json.gz")
    found = find_rank_files([tmp_path])
    assert [f.path.rsplit(".", 2)[1] for f in found.files] == ["json", "xplane"]
    assert (ranks(found), found.left_out) == ([0, 1], ())


def test_the_newest_iteration_with_most_ranks(tmp_path):
    write(tmp_path, *(f"iteration_{i}/rank{r}_trace.json" for i in (9, 20) for r in (0, 1)))
    write(tmp_path, "iteration_30/rank0_trace.json")
    found = find_rank_files([tmp_path])
    assert [f.path.split("/")[-2:] for f in found.files] == [
        ["iteration_20", "rank0_trace.json"],
        ["iteration_20", "rank1_trace.json"],
    ]
    assert len(found.left_out) == 3
    assert "another recording of the same ranks" in found.left_out[0].why


def test_ranks_of_several_nodes_come_together(tmp_path):
    write(tmp_path, "node0/rank0.json", "node0/rank1.json", "node1/rank2.json", "node1/rank3.json")
    assert ranks(find_rank_files([tmp_path])) == [0, 1, 2, 3]


def test_of_jobs_side_by_side_none_is_preferred(tmp_path):
    write(
        tmp_path, "before.rank0.json", "before.rank1.json", "after.rank0.json", "after.rank1.json"
    )
    with pytest.raises(UsageError, match="recordings of 2 jobs") as caught:
        find_rank_files([tmp_path])
    command = caught.value.hint.split(": ")[1]
    assert command == f"pinchpoint ranks '{tmp_path}/after.rank*.json'"
    assert not several_ranks(tmp_path)
    found = find_rank_files([shlex.split(command)[2]])
    assert [f.path.rsplit("/", 1)[1] for f in found.files] == [
        "after.rank0.json",
        "after.rank1.json",
    ]


def test_recordings_beside_the_only_job_are_no_ranks_of_it(tmp_path):
    write(tmp_path, "rank0.json", "rank1.json", "resnet.json", "gpt.json")
    found = find_rank_files([tmp_path])
    assert ranks(found) == [0, 1]
    assert [item.why for item in found.left_out] == [
        "neither its name nor its head says a rank"
    ] * 2


def test_unrelated_recordings_are_no_job(tmp_path):
    write(tmp_path, "resnet.json", "gpt.json")
    with pytest.raises(UsageError, match="nothing says that they are ranks of one job"):
        find_rank_files([tmp_path])
    named = [tmp_path / "resnet.json", tmp_path / "gpt.json"]
    assert ranks(find_rank_files(named)) == [None, None]  # as given


def test_one_process_that_recorded_again_is_one_rank(tmp_path):
    write(tmp_path, *(f"host_77.171800000000{i}.pt.trace.json" for i in (1, 2)))
    found = find_rank_files([tmp_path])
    assert [f.path[-21:] for f in found.files] == ["0000002.pt.trace.json"]
    assert found.left_out[0].why == "an earlier recording of the same process"


def head(path, rank, world, begin_ns=10**18):
    info = {"backend": "nccl", "rank": rank, "world_size": world}
    events = [{"ph": "X", "name": "x", "ts": 1.5}]
    document = {"distributedInfo": info, "baseTimeNanoseconds": begin_ns, "traceEvents": events}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))


def test_hosts_with_names_of_their_own_are_one_job(tmp_path):
    head(tmp_path / "alpha_7.json", 0, 2)
    head(tmp_path / "beta_9.json", 1, 2, 10**18 + 60 * 10**9)
    assert ranks(find_rank_files([tmp_path])) == [0, 1]


def test_names_that_count_from_zero_on_each_node(tmp_path):
    for node in (0, 1):
        for local in (0, 1):
            head(tmp_path / f"node{node}/rank{local}.json", 2 * node + local, 4)
    assert ranks(find_rank_files([tmp_path])) == [0, 1, 2, 3]
    for host, first in (("alpha", 0), ("beta", 2)):
        for local in (0, 1):
            head(tmp_path / f"hosts/{host}_rank{local}.json", first + local, 4)
    assert ranks(find_rank_files([tmp_path / "hosts"])) == [0, 1, 2, 3]


@pytest.mark.parametrize(("world", "later_s"), [(3, 0), (2, 3_600)])
def test_other_worlds_and_times_are_other_jobs(tmp_path, world, later_s):
    head(tmp_path / "alpha_7.json", 0, 2)
    head(tmp_path / "beta_9.json", 1, world, 10**18 + later_s * 10**9)
    with pytest.raises(UsageError, match="single ranks of 2 jobs"):
        find_rank_files([tmp_path])


def test_the_command_for_the_ranks_beside_one(tmp_path):
    write(tmp_path, "a.rank0.json", "a.rank1.json", "b.rank0.json", "c.json", "d [1].rank7.json")
    command = command_for_all_ranks(tmp_path / "a.rank1.json")
    assert command == f"pinchpoint ranks '{tmp_path}/a.rank*.json'"
    for alone in ("b.rank0.json", "c.json", "d [1].rank7.json"):
        assert command_for_all_ranks(tmp_path / alone) is None


def test_a_glob_that_would_match_more_is_spelt_out(tmp_path):
    write(tmp_path, "rank0.json", "rank1.json", "rank_notes.json")
    command = command_for_all_ranks(tmp_path / "rank0.json")
    assert shlex.split(command)[2:] == [f"{tmp_path}/rank0.json", f"{tmp_path}/rank1.json"]


def test_the_command_where_folders_name_the_ranks(tmp_path):
    write(tmp_path, *(f"run/rank{r}/host_{r + 5}.1718000000000.json" for r in (0, 1)))
    command = command_for_all_ranks(tmp_path / "run/rank0/host_5.1718000000000.json")
    assert ranks(find_rank_files(shlex.split(command)[2:])) == [0, 1]


def test_of_one_rank_the_newest(tmp_path):
    write(
        tmp_path, "rank0.1718000000001.json", "rank0.1718000000009.json", "rank1.1718000000005.json"
    )
    found = find_rank_files([tmp_path])
    assert [f.path.rsplit("/", 1)[1] for f in found.files] == [
        "rank0.1718000000009.json",
        "rank1.1718000000005.json",
    ]
    assert "one more recording of rank 0" in found.left_out[0].why


def test_numbers_that_are_no_ranks(tmp_path):
    names = ("rank99999999.json", "rank\u00b2.json", "rank\u0663.json", "a\u00b2.json", "1" * 200)
    assert [rank_in_name(name).rank for name in names] == [None] * len(names)
    write(tmp_path, *names[:4], "rank0.json", "rank1.json")
    found = find_rank_files([tmp_path])
    assert ranks(found) == [0, 1]
    assert len(found.left_out) == 4
    head(tmp_path / "far/h_1.json", 10**12, 10**15)
    assert ranks(find_rank_files([tmp_path / "far"])) == [None]


def test_rank_from_the_head_of_the_file(tmp_path):
    for pid, rank in ((77, 1), (99, 0)):
        head = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
        text = json.dumps(head | {"traceEvents": []}).encode()
        path = tmp_path / f"host_{pid}.1718000000000.pt.trace.json.gz"
        path.write_bytes(gzip.compress(text))
    found = find_rank_files([tmp_path])
    assert [(f.rank, f.world_size) for f in found.files] == [(0, 2), (1, 2)]
    assert "host_99" in found.files[0].path


def test_one_parallel_axis_is_the_rank(tmp_path):
    write(tmp_path, *(f"1718000000.5-TP-{i}-DP-0.trace.json.gz" for i in range(3)))
    assert ranks(find_rank_files([tmp_path])) == [0, 1, 2]


def test_two_axes_say_no_rank(tmp_path):
    write(tmp_path, *(f"x-TP-{i}-DP-{j}.trace.json.gz" for i in range(2) for j in range(2)))
    found = find_rank_files([tmp_path])
    assert ranks(found) == [None] * 4
    assert found.files[1].label == "TP-0-DP-1"


def test_numbered_names(tmp_path):
    write(tmp_path, "trace_0.json", "trace_1.json", "trace_2.json")
    assert ranks(find_rank_files([tmp_path])) == [0, 1, 2]


def test_a_rank_in_a_folder_around_everything_says_nothing(tmp_path):
    write(tmp_path / "rank3-experiment", "trace_0.json", "trace_1.json")
    assert ranks(find_rank_files([tmp_path / "rank3-experiment"])) == [0, 1]


def test_a_run_folder_gives_the_recordings_of_its_ranks(tmp_path):
    write(tmp_path, "run.json", "traces/rank00000of00002.h.1.trace.json.gz", "memory/x.json")
    write(tmp_path, "traces/.hidden.json")
    found = find_rank_files([tmp_path])
    assert [(f.rank, f.world_size) for f in found.files] == [(0, 2)]


def test_a_glob_and_a_list_of_paths(tmp_path):
    write(tmp_path, "rank0.json", "rank1.json", "other.json")
    (tmp_path / "ranks.txt").write_text("# two\nrank1.json\n\nrank0.json\n")
    assert ranks(find_rank_files([str(tmp_path / "rank*.json")])) == [0, 1]
    assert ranks(find_rank_files([tmp_path / "ranks.txt"])) == [0, 1]


def test_nothing_there(tmp_path):
    with pytest.raises(UsageError, match="no recordings"):
        find_rank_files([tmp_path])
    with pytest.raises(UnreadableFile, match="no such file"):
        find_rank_files([tmp_path / "missing.json"])


def test_an_object_store(tmp_path):
    fsspec = pytest.importorskip("fsspec", reason="object stores are read through fsspec")
    from pinchpoint.importers.ranks.files import local_copy

    store = fsspec.filesystem("memory")
    store.pipe({f"/job/rank{i}.json": b"[]" for i in (1, 0)} | {"/job/readme.md": b""})
    found = find_rank_files(["memory://job"])
    assert ranks(found) == [0, 1]
    with local_copy(found.files[0].path) as path:
        assert path.read_bytes() == b"[]"
    assert not path.exists()
    with pytest.raises(UnreadableFile), local_copy("memory://job/rank7.json"):
        pass


def test_the_files_of_a_bench_folder_are_no_ranks(tmp_path):
    write(tmp_path, "session.json", "result.json", "runs/000/steps-1.json", "runs/001/steps-2.json")
    assert not several_ranks(tmp_path)
    write(tmp_path, "profile/traces/rank0of2.a.json", "profile/traces/rank1of2.a.json")
    assert several_ranks(tmp_path)


def test_captures_of_graphs_beside_the_rounds_that_replay_them_are_left_out(tmp_path):
    rounds = [f"1-TP-{rank}-DECODE.trace.json" for rank in (0, 1)]
    captures = [f"capture_traces/graph_capture_rank_{rank}.json" for rank in (0, 1)]
    write(tmp_path, *rounds, *captures)
    found = find_rank_files([tmp_path])
    assert [f.path.rsplit("/", 1)[1] for f in found.files] == rounds
    assert {out.why for out in found.left_out} == {"graphs being captured, before the work itself"}
    write(tmp_path, *(f"other/graph_capture_rank_{rank}.json" for rank in (0, 1)))
    assert len(find_rank_files([tmp_path / "other"]).files) == 2


def test_run_folders_below_a_folder_are_each_one_recording(tmp_path):
    for run in ("runs/before", "runs/after"):
        write(
            tmp_path / run,
            "run.json",
            "traces/r.1.trace.json",
            "names/r.1.trace.json",
            "values/r.json",
        )
    write(tmp_path / "runs", "alone.json")
    found = [[str(Path(p).relative_to(tmp_path)) for p in g] for g in groups_in(tmp_path / "runs")]
    assert found == [["runs/after"], ["runs/alone.json"], ["runs/before"]]


def test_notes_of_ascend_beside_recordings_are_no_recordings(tmp_path):
    for rank in (0, 1):
        place = tmp_path / f"rank{rank}_ascend_pt"
        write(place, f"profiler_info_{rank}.json", text='{"config": {"common_config": {}}}')
        write(place, "profiler_metadata.json", text='{"ENV_VARIABLES": {}}')
        write(place, "out/communication.json", text='{"step5": {"p2p": {}}}')
        write(place, "out/trace_view.json")
    assert [[Path(p).name for p in group] for group in groups_in(tmp_path)] == [
        ["trace_view.json", "trace_view.json"]
    ]
    assert ranks(find_rank_files([tmp_path])) == [0, 1]


def test_recordings_that_are_called_as_notes_are_read(tmp_path):
    write(tmp_path, "communication.rank0.json", "communication.rank1.json")
    assert ranks(find_rank_files([tmp_path])) == [0, 1]
