"""Which stage of a loader is busy, by looks at the thread that takes batches in."""

from dataclasses import replace

import pytest

from pinchpoint.diagnosis.evidence.taken_apart import taken_apart
from pinchpoint.trace.run_samples import SampledThread, Spent
from sampled_runs import sampled, samples

LOOP = (
    "torch/utils/data/_utils/pin_memory.py(28): do_one_step",
    "torch/utils/data/_utils/pin_memory.py(52): _pin_memory_loop",
)
GET = ("multiprocessing/queues.py(122): get", *LOOP)
RECEIVES = (
    "multiprocessing/connection.py(395): _recv",
    "torch/multiprocessing/reductions.py(540): rebuild_storage_fd",
    *GET,
)
WAITS = ("multiprocessing/connection.py(1148): wait", "multiprocessing/connection.py(257): poll")
PINS = ("torch/utils/data/_utils/pin_memory.py(57): pin_memory", *LOOP)


def looked_at(*spent, looks=100):
    stacks = tuple(Spent(frames, "", us // 1000, us, us, 0) for frames, us in spent)
    thread = SampledThread("Thread-1", False, looks, 1, (), stacks)
    found = samples(every=0)
    return sampled(replace(found, threads=(*found.threads, thread)))


@pytest.mark.parametrize(
    ("receives", "waits", "pins", "bounds"),
    [
        pytest.param(70, 20, 10, True, id="one tensor after the other"),
        pytest.param(10, 80, 10, False, id="waits for its workers"),
        pytest.param(20, 10, 70, False, id="copies large batches"),
    ],
)
def test_what_the_thread_that_takes_batches_in_does(receives, waits, pins, bounds):
    spent = ((RECEIVES, receives * 1000), ((*WAITS, *GET), waits * 1000), (PINS, pins * 1000))
    found = taken_apart(looked_at(*spent))
    shares = (found.receiving_ratio, found.pinning_ratio, found.waiting_ratio)
    assert shares == (receives / 100, pins / 100, waits / 100)
    assert found.bounds is bounds


def test_too_few_looks_and_other_threads_say_nothing():
    assert taken_apart(looked_at((RECEIVES, 100_000), looks=19)) is None
    assert taken_apart(looked_at((("train.py(3): read",), 100_000))) is None
