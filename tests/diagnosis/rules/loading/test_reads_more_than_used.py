"""Workers that read whole arrays, chunks or files of which a batch holds a piece."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import LoaderWorker, RunFacts
from pinchpoint.trace.run_samples import SampledWorker
from sampled_runs import samples

MS, MIB = 1_000_000, 1 << 20
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
LOOP = "torch/utils/data/_utils/worker.py(374): _worker_loop"
OF_NUMPY = ("numpy/lib/_npyio_impl.py(257): __getitem__", "clips.py(52): clip", LOOP)
INFLATING = ("zipfile.py(1031): _read1", "zipfile.py(955): read", *OF_NUMPY)
OF_H5PY = ("h5py/_hl/dataset.py(840): __getitem__", "cells.py(31): row", LOOP)
AUGMENTING = ("clips.py(60): augment", LOOP)


def run(stack=INFLATING, *, read_mib=600, used_mib=20, files=9, wait_ms=30, **facts):
    """Steps of 100 ms with two workers that compute for 60 ms of each on cores that are taken."""
    built = TraceBuilder(devices=())
    for step in range(6):
        at = step * 100 * MS
        built.step(step, at, 100 * MS)
        built.annotation(NEXT, at, wait_ms * MS)
        built.op("aten::mm", at + wait_ms * MS, 95 * MS - wait_ms * MS)
        built.add("counters", time_ns=at, name="cpu_ratio", value=1.0)
    note = LoaderWorker(
        2, 8, 10, 1, None, None if used_mib is None else used_mib * MIB, read_mib * MIB, 100
    )
    seen = SampledWorker(0, 10, ((stack, files), (AUGMENTING, 10 - files)))
    known = {
        "unprofiled_step_ns": (100 * MS,) * 10,
        "data_wait_ns": (wait_ms * MS,) * 10,
        "user_ns_per_step": 40.0 * MS,
        "workers_ns_per_step": 60.0 * MS,
        "loader_workers": (note, note),
        "torch_threads": 1,
        "cores_allowed": 2.0,
        "cores_there": 2,
        "cores_of_others": 1.0,
        "samples": replace(samples(every=0, usual_ms=100), workers=(seen, seen)),
    }
    return replace(built.trace(), run=RunFacts(**(known | facts)))


def test_an_archive_that_is_inflated_for_each_row(outcome):
    """0.9 of the workers' 60 ms, but for a thirtieth, are gone: of 100 ms on one core 47.8 stay."""
    (finding,) = outcome("reads-more-than-used", run()).findings
    assert "30 times what their batches hold, and inflate it" in finding.summary
    assert "6.00 MiB of files for a batch of 205 KiB" in finding.summary
    assert (finding.location.file, finding.location.line) == ("clips.py", 52)
    assert finding.likely_saving_ns == pytest.approx(52.2 * MS, rel=0.01)
    assert finding.fix.startswith("Inflate it once in each worker")
    assert finding.confidence == "high"
    assert outcome("small-file-io", run()).answer == "clear"


def test_chunks_that_are_read_for_a_row_each(outcome):
    (finding,) = outcome("reads-more-than-used", run(OF_H5PY)).findings
    assert "inflate" not in finding.summary
    assert finding.fix.startswith("Read only what is used")
    assert finding.confidence == "medium"


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(run(read_mib=60), id="as much as the batches hold, and containers"),
        pytest.param(run(read_mib=5, used_mib=1), id="next to nothing: what is imported"),
        pytest.param(run(files=3), id="workers mostly compute"),
        pytest.param(run(used_mib=400), id="each sample is inflated, and used as a whole"),
        pytest.param(
            run(wait_ms=0, user_ns_per_step=None), id="every batch is there, and cores are unknown"
        ),
    ],
)
def test_loaders_that_use_what_they_read(outcome, trace):
    assert outcome("reads-more-than-used", trace).answer == "clear"


def test_without_figures_of_workers_it_is_not_checked(outcome):
    assert outcome("reads-more-than-used", run(used_mib=None)).answer == "not checked"


STORED = ("zipfile/__init__.py(1020): _update_crc", "zipfile/__init__.py(1095): _read1", *OF_NUMPY)


def test_an_archive_that_is_not_compressed_is_read_and_not_inflated(outcome):
    (finding,) = outcome("reads-more-than-used", run(STORED)).findings
    assert "30 times what their batches hold, out of archives:" in finding.summary
    assert finding.fix.startswith("Read each array once in each worker")
    assert finding.confidence == "high"


def late(every, read_mib=600):
    """On a device: recorded steps find their batch ready, each fifth of the run waits 450 ms."""
    found = run(STORED, read_mib=read_mib, wait_ms=0, user_ns_per_step=None)
    seen = SampledWorker(0, 10, ((STORED, 9), (AUGMENTING, 1)))
    far = samples(every=every, usual_ms=100, far_ms=550, wait_ns=450 * MS, workers=(seen,))
    return replace(found, run=replace(found.run, samples=far))


def test_batches_that_come_late_in_some_steps_of_the_run(outcome):
    (finding,) = outcome("reads-more-than-used", late(5)).findings
    assert "Every 5 steps one takes 550 ms instead of 100 ms" in finding.summary
    assert finding.cost_ns_per_step == pytest.approx(90 * MS, rel=0.02)
    assert outcome("reads-more-than-used", late(0)).answer == "clear"
    assert outcome("reads-more-than-used", late(5, read_mib=60)).answer == "clear"
