"""How often functions run for a batch of a dataset with an iterator, as a worker counts it."""

import itertools
import sys
from types import SimpleNamespace

import pytest

from pinchpoint.capture.process.stream_calls import COUNTED, StreamCalls

SAMPLES = 8


def _unpack(item):
    return item + 1


def _stream(divide_first):
    """What one of two workers does: unpack, and give on its half; or the other way around."""
    items = itertools.count()
    if divide_first:
        return map(_unpack, itertools.islice(items, 0, None, 2))
    return itertools.islice(map(_unpack, items), 0, None, 2)


def _fetched(stream, batches, samples=SAMPLES, **fetcher):
    counts = StreamCalls()
    for _ in range(batches):
        with counts.counting(SimpleNamespace(**fetcher), [0] * samples):
            list(itertools.islice(stream, samples))
    assert sys.getprofile() is None
    return counts.note


@pytest.mark.parametrize(("divide_first", "calls"), [(False, 2 * SAMPLES), (True, SAMPLES)])
def test_what_is_done_before_workers_divide_a_stream_runs_for_the_others_too(divide_first, calls):
    stream = _stream(divide_first)
    next(stream)  # the first batch of all would else have one item less before its last
    note = _fetched(stream, COUNTED, dataset_iter=stream)
    assert note["samples"] == SAMPLES
    [(file, _, _, times)] = [one for one in note["calls"] if one[2] == "_unpack"]
    assert (file.endswith("test_stream_calls.py"), times) == (True, calls)


@pytest.mark.parametrize(
    ("batches", "samples", "fetcher"),
    [
        pytest.param(COUNTED - 1, SAMPLES, {"dataset_iter": None}, id="before that batch"),
        pytest.param(COUNTED, SAMPLES, {}, id="a dataset with indices"),
        pytest.param(COUNTED, 2, {"dataset_iter": None}, id="two samples"),
    ],
)
def test_nothing_is_counted_of_others(batches, samples, fetcher):
    assert _fetched(_stream(False), batches, samples, **fetcher) is None


def test_who_profiles_calls_goes_on():
    def theirs(*_):
        pass

    counts = StreamCalls()
    sys.setprofile(theirs)
    try:
        for _ in range(COUNTED):
            with counts.counting(SimpleNamespace(dataset_iter=None), [0] * SAMPLES):
                pass
        assert sys.getprofile() is theirs
    finally:
        sys.setprofile(None)
    assert counts.note is None
