"""Watches that begin or end where the program is in an inference mode."""

import threading

import pytest

from pinchpoint.capture.flow.watch import Watch

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)


def still_works():
    """Operations without tensors go on, and nothing of the watch is left."""
    assert torch.zeros(3).sum() == 0
    assert torch.tensor([1, 2]).tolist() == [1, 2]
    assert not torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Python)
    assert torch._C._len_torch_dispatch_stack() == 0
    for method in (torch.inference_mode.__enter__, torch.inference_mode.__exit__):
        assert method.__module__ == "torch.autograd.grad_mode"


def names(watch):
    return [one.kind.name for step in watch.steps for one in step]


def test_a_watch_that_ends_inside_is_taken_away_where_the_program_leaves():
    watch = Watch(torch)
    assert watch.begin()
    with torch.inference_mode():
        with torch.inference_mode():
            torch.ones(2) + 1
            watch.end()
            torch.ones(2) * 3  # heard no more
        assert torch._C._len_torch_dispatch_stack() == 1
        torch.zeros(2)
    still_works()
    assert "aten::add" in names(watch)
    assert "aten::mul" not in names(watch)
    watch.close()


def test_a_decorated_function_and_a_thread_of_its_own():
    failed = []

    @torch.inference_mode()
    def serve(watch):
        torch.ones(2) + 1
        watch.end()
        watch.close()

    def run():
        try:
            for _ in range(2):
                watch = Watch(torch)
                assert watch.begin()
                serve(watch)
                still_works()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert failed == []


def test_inside_one_inference_mode_nothing_is_put_off():
    with torch.inference_mode():
        watch = Watch(torch)
        assert watch.begin()
        torch.ones(2) + 1
        watch.step_ends()
        torch.ones(2) * 3
        watch.close()
        assert torch._C._len_torch_dispatch_stack() == 0
    still_works()
    assert watch.why_not == ""
    assert {"aten::add", "aten::mul"} <= set(names(watch))


def test_what_a_watch_that_began_inside_may_not_have_heard_counts_as_read():
    watch = Watch(torch)
    with torch.inference_mode():
        assert watch.begin()
        kept = torch.ones(2) + 1
    kept.exp()  # not heard: torch has put its keys back
    with torch.inference_mode():
        torch.ones(2) * 3
        watch.step_ends()
        more = torch.ones(2) - 4
        watch.end()
    still_works()
    assert {"aten::add", "aten::mul", "aten::sub"} <= set(names(watch))
    assert "aten::exp" not in names(watch)
    assert watch.storages.all[watch.storages.number(kept)].escaped
    assert not watch.storages.all[watch.storages.number(more)].escaped
    watch.close()


def test_a_watch_in_a_block_for_each_step_hears_of_the_later_ones():
    """A server: the step's edge lies inside of the block, where the model was called."""
    watch = Watch(torch)
    for number in range(4):
        with torch.inference_mode():
            scores = torch.ones(3) + number
            if not number:
                assert watch.begin()
            else:
                watch.step_ends()
            scores.topk(1)
        scores.numpy()
    with torch.inference_mode():
        torch.ones(3) + 4
        watch.close()
    still_works()
    assert watch.why_not == ""
    steps = [[one.kind.name for one in step] for step in watch.steps]
    assert [step.count("aten::topk") for step in steps] == [1, 1, 1, 1]
    assert [step.count("aten::add") for step in steps] == [1, 1, 1, 1]


def test_what_the_block_raises_goes_on():
    watch = Watch(torch)
    assert watch.begin()

    @torch.inference_mode()
    def fails():
        watch.end()
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fails()
    still_works()
    watch.close()
