"""Files of views: what they hold against what is written, by what a run saw of its calls."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
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
    thirds = (
        (stored_bytes // 2, MB // 2),
        (stored_bytes, MB),
    )  # all of their time is that of bytes
    return TensorFiles(kind, at, 10, 10 * MB, told, told * held_bytes, told * stored_bytes, thirds)


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
    assert [change.factor for change in found.changes] == pytest.approx([0.1, 0.1])
    assert found.at_best == ()
    assert 12.6e6 <= gain(trace, "whole-storage-saved") < 14e6  # the kernel may hide what is left


THIRDS = {  # of calls of 3 MB, nine tenths of which are nobody's
    "half of it": (((MB, 2 * MB), (2 * MB, 5 * MB // 2)), 1 - 0.9 * 1.5 / 3, None),
    "nothing": (((MB, 4 * MB), (2 * MB, 4 * MB)), 1.0, None),
    "more than all": (((MB, 1 * MB), (2 * MB, 4 * MB)), 0.1, None),
    "not known": (((3 * MB, 3 * MB), (3 * MB, 4 * MB)), 1.0, 0.1),
}


@pytest.mark.parametrize("how", THIRDS)
def test_what_does_not_grow_with_bytes_stays(outcome, how):
    thirds, left, best = THIRDS[how]
    one = replace(calls("save", 57, "write", 300_000, 3 * MB), thirds=thirds)
    (found,) = outcome("whole-storage-saved", caching(one)).findings
    assert [change.factor for change in found.changes] == pytest.approx([left])
    assert [change.factor for change in found.at_best] == ([] if best is None else [best])


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


def test_a_window_without_stacks_shows_no_file(outcome):
    b = TraceBuilder()
    for step in range(6):
        b.step(step, step * 10 * MB, 10 * MB)
        b.op("aten::mm", step * 10 * MB, MB)
    bare, run = b.trace(), caching(*WIDE).run
    for rule in ("whole-storage-saved", "tensor-files-in-step"):
        assert outcome(rule, replace(bare, run=run)).answer == "not checked"
        assert outcome(rule, bare).answer == "clear"


def test_a_comprehension_is_its_function(outcome):
    load = calls("load", 62, "<listcomp>", 300_000, 3 * MB)
    at = (load.at[0], load.at[1], "cache.py(62): read", "cache.py(9): main")
    (found,) = outcome("whole-storage-saved", caching(replace(load, at=at))).findings
    assert (found.location.function, found.location.line) == ("read", 62)
