"""Files of views: what they hold against what is written, by what a run saw of its calls."""

from dataclasses import replace

import pytest

from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_samples import TensorFiles
from program import Program
from sampled_runs import TRAINING, samples

MB = 1_000_000
SAVE, LOAD = "torch/serialization.py(967): save", "torch/serialization.py(1301): load"


def caching(*files, saves=2, loads=4, save_us=3_000, load_us=2_000):
    """Steps that write and read files of tensors, beside a kernel of 2 ms."""
    p = Program()
    for _ in p.steps(6):
        p.kernel("work", 2_000)
        p.sync()
        with p.frame("cache.py(50): write"):
            for _ in range(saves):
                p.host(SAVE, save_us)
        with p.frame("cache.py(60): read"):
            for _ in range(loads):
                p.host(LOAD, load_us)
        p.busy(100)
    found = replace(samples(TRAINING), events=(), far=0, excess_ns=0, tensor_files=files)
    return replace(p.trace(), run=RunFacts(samples=found))


def calls(kind, line, function, held_bytes, stored_bytes, told=10):
    at = ("torch/_tensor.py(9): wrapped", f"cache.py({line}): {function}", "cache.py(9): main")
    return TensorFiles(kind, at, 10, 10 * MB, told, told * held_bytes, told * stored_bytes)


WIDE = (
    calls("save", 57, "write", 300_000, 3 * MB),
    calls("load", 62, "read", 300_000, 3 * MB),
)


def test_rows_that_are_saved_with_their_batch(outcome, gain):
    trace = caching(*WIDE)
    (found,) = outcome("whole-storage-saved", trace).findings
    assert found.summary == (
        "torch.save writes 10 times what its tensors hold, 3 MB for 0.3 MB, in write (cache.py:57),"
        " and torch.load reads as much in read (cache.py:62); all such files take 14.0 ms of the"
        " mean recorded step"
    )
    assert found.location.line == 57
    assert [change.factor for change in found.changes] == [0.1, 0.1]
    assert 12.6e6 <= gain(trace, "whole-storage-saved") < 14e6  # the kernel may hide what is left


def test_it_is_said_in_place_of_the_files_themselves(ranked):
    assert "tensor-files-in-step" not in ranked(caching(*WIDE))
    assert "whole-storage-saved" in ranked(caching(*WIDE))


def test_where_one_place_alone_saves_views(outcome):
    trace = caching(calls("save", 57, "write", 300_000, 3 * MB), calls("load", 62, "read", MB, MB))
    (found,) = outcome("whole-storage-saved", trace).findings
    assert found.cost_ns_per_step == 6_000_000
    assert "torch.load" not in found.summary


QUIET = {
    "copies": (calls("save", 57, "write", MB, MB), calls("load", 62, "read", MB, MB)),
    "most of a storage": (calls("save", 57, "write", 2 * MB, 3 * MB),),
    "small files": (calls("save", 57, "write", 100, 1_000),),
    "objects that nobody looked into": (calls("save", 57, "write", 300_000, 3 * MB, told=0),),
    "in a function that no step calls": (calls("save", 57, "export", 300_000, 3 * MB),),
}


@pytest.mark.parametrize("how", QUIET)
def test_what_is_saved_as_it_is(outcome, how):
    assert outcome("whole-storage-saved", caching(*QUIET[how])).answer == "clear"


def test_without_looks_at_what_is_saved_it_is_not_checked(outcome):
    answer = outcome("whole-storage-saved", caching())
    assert answer.answer == "not checked"
    assert "while a program runs" in answer.why


def test_without_files_there_is_nothing_to_ask(outcome):
    assert outcome("whole-storage-saved", caching(saves=0, loads=0)).answer == "clear"
