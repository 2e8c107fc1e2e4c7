"""Steps that read and write files of tensors, each told by itself."""

import pytest

from program import Program

SAVE, LOAD = "torch/serialization.py(967): save", "torch/serialization.py(1301): load"


def filing(name, *, times=3, every=1):
    """Steps with a kernel of 2 ms; each ``every``-th makes ``times`` calls of 2 ms."""
    p = Program()
    for i in p.steps(7):
        p.kernel("work", 2_000)
        p.sync()
        with p.frame("cache.py(60): files"):
            for _ in range(times if i % every == 0 else 0):
                p.host(name, 2_000)
        p.busy(100)
    return p.trace()


@pytest.mark.parametrize(("name", "does"), [(LOAD, "reads"), (SAVE, "writes")])
def test_what_each_step_does_with_files(outcome, gain, name, does):
    trace = filing(name)
    (found,) = outcome("tensor-files-in-step", trace).findings
    assert found.summary == (
        f"The training thread {does} files of tensors in files (cache.py:60), 3 × a step, for"
        " 6.00 ms of the mean recorded step"
    )
    assert gain(trace, "tensor-files-in-step") == pytest.approx(6e6, rel=0.02)
    assert outcome("checkpoint-stall", trace).answer == "clear"


def test_what_is_pickled_in_memory_is_no_file(outcome):
    """Each step pickles for 9 ms, of which the archive of a tensor's memory takes 2."""
    p = Program()
    for _ in p.steps(7):
        p.kernel("work", 2_000)
        p.sync()
        with (
            p.frame("average.py(8): keep"),
            p.frame("<built-in function dumps>"),
        ):
            p.host("pickle.py(1): persistent_id", 7_000)
            with p.frame("torch/storage.py(1247): __reduce__"):
                p.host(SAVE, 2_000)
        p.busy(100)
    (found,) = outcome("tensor-files-in-step", p.trace()).findings
    assert found.summary == (
        "The training thread pickles tensors, or takes them out again, in keep (average.py:8),"
        " 1 × a step, for 9.00 ms of the mean recorded step"
    )
    assert outcome("checkpoint-stall", p.trace()).findings == ()


@pytest.mark.parametrize(
    "name", ["train.py(90): load_checkpoint", "safetensors/torch.py(3): load_file"]
)
def test_now_and_then_it_is_read_too(outcome, name):
    (found,) = outcome("tensor-files-in-step", filing(name, times=1, every=3)).findings
    assert "reads files of tensors" in found.summary
    assert outcome("checkpoint-stall", filing(name, times=1, every=3)).answer == "clear"


@pytest.mark.parametrize(("times", "every"), [(3, 3), (1, 1)])
def test_a_save_now_and_then_or_one_at_the_end_of_each_step_is_a_checkpoint(outcome, times, every):
    trace = filing(SAVE, times=times, every=every)
    assert outcome("tensor-files-in-step", trace).answer == "clear"
    assert outcome("checkpoint-stall", trace).findings
