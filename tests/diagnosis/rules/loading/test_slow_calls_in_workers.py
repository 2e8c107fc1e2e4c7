"""Workers of a loader that call a library in a slow way, or for what they had before."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.trace import LoaderWorker, RunFacts
from pinchpoint.trace.run_samples import Called, Given, SampledWorker
from sampled_runs import samples

MS, MIB = 1_000_000, 1 << 20
NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
LOOP = "torch/utils/data/_utils/worker.py(374): _worker_loop"
AT = "clips.py(52): table"
READING = ("numpy/lib/_npyio_impl.py(1395): loadtxt", AT, LOOP)
AUGMENTING = ("clips.py(60): augment", LOOP)
PATH = Given("0", "str", (40,), (40,))
READS = Called(AT, "np.loadtxt()", "numpy.loadtxt", 80, 3, (PATH,))


def run(called=READS, *, looks=80):
    """Steps of 100 ms with two workers that compute for 60 ms of each on cores that are taken."""
    built = TraceBuilder(devices=())
    for step in range(6):
        at = step * 100 * MS
        built.step(step, at, 100 * MS)
        built.annotation(NEXT, at, 30 * MS)
        built.op("aten::mm", at + 30 * MS, 65 * MS)
        built.add("counters", time_ns=at, name="cpu_ratio", value=1.0)
    note = LoaderWorker(2, 8, 10, 1, None, 20 * MIB, 20 * MIB, 100)
    seen = SampledWorker(0, 100, ((READING, looks), (AUGMENTING, 100 - looks)), (called,))
    facts = RunFacts(
        unprofiled_step_ns=(100 * MS,) * 10,
        data_wait_ns=(30 * MS,) * 10,
        user_ns_per_step=40.0 * MS,
        workers_ns_per_step=60.0 * MS,
        loader_workers=(note, note),
        torch_threads=1,
        cores_allowed=2.0,
        cores_there=2,
        cores_of_others=1.0,
        samples=replace(samples(every=0, usual_ms=100), workers=(seen, seen)),
    )
    return replace(built.trace(), run=facts)


def test_numbers_that_are_read_from_text(outcome):
    (finding,) = outcome("slow-calls-in-workers", run()).findings
    assert finding.summary == (
        "In worker processes, np.loadtxt() in table (clips.py:52) reads numbers from text: 80 % of"
        " their time"
    )
    assert (finding.location.file, finding.location.line) == ("clips.py", 52)
    least, most = finding.saving_ns_per_step
    assert 22 * MS <= least < finding.likely_saving_ns < most <= 60 * MS


def test_what_is_read_again_is_to_be_kept(outcome):
    same = replace(READS, given=(replace(PATH, alike=3),))
    (finding,) = outcome("slow-calls-in-workers", run(same)).findings
    assert "reads the same file, unchanged again each time" in finding.summary
    assert finding.fix.startswith("Keep what loadtxt answers")


@pytest.mark.parametrize(
    "trace",
    [run(replace(READS, called="numpy.load")), run(replace(READS, at="clips.py(9): other"))],
    ids=["another call", "another line"],
)
def test_look_alikes(outcome, trace):
    assert outcome("slow-calls-in-workers", trace).answer == "clear"


def test_a_small_part_of_what_they_do_is_seen_and_not_told(outcome):
    said = outcome("slow-calls-in-workers", run(looks=15))
    assert (said.answer, said.why) == ("smaller", "smaller than 20 % of the workers' time: 15.0 %")
