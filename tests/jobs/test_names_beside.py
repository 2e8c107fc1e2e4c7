"""A rank's file in a run folder is answered with the window for names that lies beside it."""

import json

from pinchpoint.importers.ranks.files import RankFile
from pinchpoint.importers.run_folder.facts import timed_steps_ns
from pinchpoint.importers.run_folder.samples import samples_of
from pinchpoint.jobs.rank_map import read_rank
from pinchpoint.report.documents.rank_records import decode_record

CALLS, CALL_US, STEP_US = 40, 1_000, 60_000
FILE = "rank00000of00002.vm.7.trace.json"


def window(*, names):
    """Steps of 60 ms: a product of 10 ms, then an all-reduce of 0.8 ms in each of 40 ms."""
    size = {"Input Dims": [[2_000]], "Input type": ["float"]} if names else {}
    events = []

    def row(name, at, takes, category="cpu_op", thread=7, **args):
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": thread}
            | {"ts": at, "dur": takes, "args": args}
        )

    for step in range(5):
        begin = step * STEP_US
        row(f"ProfilerStep#{step}", begin, STEP_US, "user_annotation")
        row("aten::mm", begin + 100, 10_000)
        if names:
            row("train.py(9): reduce_gradients", begin + 11_000, 45_000, "python_function")
        for call in range(CALLS):
            at = begin + 12_000 + call * CALL_US
            row("c10d::allreduce_", at, 50, **size)
            row("gloo:all_reduce", at + 100, 800, "user_annotation", thread=8, **size)
    info = {"rank": 0, "world_size": 2, "backend": "gloo"}
    return json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events})


def test_a_finding_has_the_sizes_and_the_place_of_the_window_for_names(tmp_path):
    for part in ("traces", "names"):
        (tmp_path / part).mkdir()
    path = tmp_path / "traces" / FILE
    path.write_text(window(names=False))
    alone = decode_record(read_rank(RankFile(str(path), 0)))
    assert "small-collectives" in alone.not_checked  # no sizes
    (tmp_path / "names" / FILE).write_text(window(names=True))
    said = decode_record(read_rank(RankFile(str(path), 0)))
    found = next(one.item for one in said.found if one.item.id == "small-collectives")
    assert found.location.function == "reduce_gradients"
    assert found.summary.startswith("40 collectives a step move 7.81 KiB each")


def test_windows_of_a_process_that_were_recorded_later_belong_to_it(tmp_path):
    """A trial, and first steps, took the names without a number."""
    stem = "rank00000of00002.host.7"
    for part in ("traces", "names", "processes", "samples"):
        (tmp_path / part).mkdir()
    times, names = f"{stem}.3.trace.json", f"{stem}.2.trace.json"
    (tmp_path / "traces" / times).write_text(window(names=False))
    (tmp_path / "names" / names).write_text(window(names=True))
    note = {
        "rank": 0,
        "recordings": [{"file": times, "window": "times"}, {"file": names, "window": "names"}],
        "steps": {"count": 40, "before_ns": [7_000_000] * 4},
    }
    (tmp_path / "processes" / f"{stem}.json").write_text(json.dumps(note))
    (tmp_path / "samples" / f"{stem}.json").write_text(json.dumps({"sampled": {"looks": 3}}))
    path = tmp_path / "traces" / times
    said = decode_record(read_rank(RankFile(str(path), 0)))
    found = next(one.item for one in said.found if one.item.id == "small-collectives")
    assert found.location.function == "reduce_gradients"
    assert samples_of(path).looks == 3
    assert timed_steps_ns(str(path)) == (7_000_000,) * 4
