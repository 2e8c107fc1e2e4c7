"""Whatever a snapshot's fields hold, the answer is a report or one clear error."""

import gzip
import pickle
import random

import pytest

import pinchpoint as pp
from analysis.memory.recordings import FOLDER
from pinchpoint.report import diagnose
from pinchpoint.report.assemble.memory import memory_report
from pinchpoint.report.html_page import interactive
from pinchpoint.report.pages.memory import memory_page
from pinchpoint.report.terminal import render

VALUES = [
    *(0, -1, 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 512, 3.5, True, None),
    *("x", [], {}, (1, 2), "inactive", "alloc", "oom", "snapshot", "segment_unmap"),
]


def mutate(snapshot, chance: random.Random) -> None:
    trace = snapshot["device_traces"][0]
    segment = chance.choice(snapshot["segments"])
    target = chance.choice(
        [chance.choice(trace), chance.choice(trace), segment, chance.choice(segment["blocks"])]
    )
    target[chance.choice(list(target))] = chance.choice(VALUES)
    if chance.random() < 0.2:
        del trace[chance.randrange(len(trace))]


@pytest.mark.parametrize("seed", range(40))
def test_one_clear_answer(tmp_path, seed):
    chance = random.Random(seed)
    name = chance.choice(["eval_nograd", "cudagraph_pool", "ring_truncated"])
    snapshot = pickle.loads(gzip.decompress((FOLDER / f"{name}.pickle.gz").read_bytes()))
    for _ in range(chance.choice((1, 3))):
        try:
            mutate(snapshot, chance)
        except (TypeError, KeyError, IndexError):
            break  # an earlier mutation left nothing to choose from
    path = tmp_path / "x.pickle"
    path.write_bytes(pickle.dumps(snapshot, 4))
    try:
        trace = pp.load(path)
        report = memory_report(trace)
    except pp.PinchpointError:
        return
    assert report.crashed == ()
    assert len(render(memory_page(report))) < 20_000
    assert len(interactive.render(trace, diagnose(trace), found=report)) < 2_000_000


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_file_that_was_cut_off_is_analysed_as_far_as_it_goes(tmp_path, share):
    data = gzip.decompress((FOLDER / "oom.pickle.gz").read_bytes())
    path = tmp_path / "cut.pickle"
    path.write_bytes(data[: int(len(data) * share)])
    report = memory_report(pp.load(path))
    assert not report.source.complete
    assert "cut off" in " ".join(report.devices[0].doubts)
    assert report.devices[0].events > 100
