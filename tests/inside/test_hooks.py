"""Events of a program: patched once, told to all who listen, put back when nobody does."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pinchpoint.inside.hooks import (
    BATCH_FETCHED,
    GRAPH_REPLAYED,
    ITERATOR_BUILT,
    MODEL_CALLED,
    Event,
    _replace,
)


class Loader:
    def take(self):
        return "batch"


@pytest.fixture
def event(monkeypatch):
    """An event of a module that is there: ``take`` of its loader was called."""
    original = Loader.take
    monkeypatch.setitem(sys.modules, "loading", SimpleNamespace(Loader=Loader))

    def hook(module, event):
        def take(self):
            if event.wanted:
                event.tell(self)
            return original(self)

        return _replace(module.Loader, "take", take)

    yield Event("loading", hook)
    Loader.take = original


def never(module, error):
    raise AssertionError(f"{module}: {error}")


def test_two_listeners_share_one_patch_and_the_last_one_undoes_it(event):
    original, first, second = Loader.take, [], []
    stop_first = event.listen(first.append, never)
    patched = Loader.take
    stop_second = event.listen(second.append, never)
    assert Loader.take is patched is not original
    assert Loader().take() == "batch"
    stop_first()
    Loader().take()
    assert (len(first), len(second)) == (1, 2)
    stop_second()
    assert Loader.take is original


def test_a_patch_that_somebody_wrapped_stays_and_tells_once(event):
    heard = []
    stop = event.listen(heard.append, never)
    ours = Loader.take
    Loader.take = lambda self: ours(self)
    stop()
    assert Loader().take() == "batch"
    assert heard == []
    event.listen(heard.append, never)
    Loader().take()
    assert len(heard) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_copy_hears_nothing_until_it_listens(event):
    inherited, own = [], []
    event.listen(inherited.append, never)
    copy = os.fork()
    if copy == 0:
        Loader().take()
        event.listen(own.append, never)
        Loader().take()
        os._exit(10 * len(inherited) + len(own))
    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 1
    Loader().take()
    assert (len(inherited), len(own)) == (1, 0)


def test_a_module_that_cannot_be_patched_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "loading", SimpleNamespace())
    failed = []
    event = Event("loading", lambda module, event: module.missing)
    event.listen(lambda: None, lambda module, error: failed.append((module, type(error))))
    assert failed == [("loading", AttributeError)]


@pytest.mark.torch
def test_batches_of_torch_and_the_end_of_a_loader():
    torch = pytest.importorskip("torch", reason="hooks torch's loader")
    from torch.utils.data import dataloader

    before = dataloader._BaseDataLoaderIter.__next__, dataloader.DataLoader.__iter__
    got, built = [], []
    stops = [
        BATCH_FETCHED.listen(lambda start, end, iterator, batch: got.append(batch), never),
        ITERATOR_BUILT.listen(lambda duration_ns, loader: built.append(loader), never),
    ]
    loader = dataloader.DataLoader(torch.arange(4), batch_size=2)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    for stop in stops:
        stop()
    assert got == [True, True, False]
    assert built == [loader]
    assert before == (dataloader._BaseDataLoaderIter.__next__, dataloader.DataLoader.__iter__)


COMPILED = """
import torch
from pinchpoint.inside.hooks import EAGER_OPTIMIZER_STEPPED, OPTIMIZER_STEPPED
eager, every = [], []
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
never = lambda module, error: print(module, error)
stop = EAGER_OPTIMIZER_STEPPED.listen(eager.append, never)
torch.compile(optimizer.step, backend="eager")()
print("traced as nothing", len(eager))
optimizer.step()
print("plain", len(eager))
OPTIMIZER_STEPPED.listen(every.append, never)
torch.compiler.reset()
torch.compile(optimizer.step, backend="eager")()
print("heard", len(every))
"""


@pytest.mark.torch
def test_compiled_steps_are_left_alone_by_who_wants_that(tmp_path):
    pytest.importorskip("torch", reason="compiles a step")
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.splitlines() == ["traced as nothing 0", "plain 1", "heard 1"], done.stderr


def test_only_calls_from_outside_of_modules_are_told_and_compiled_ones_are_not(monkeypatch):
    class Module:
        def __init__(self, *inner):
            self.inner = inner

        def __call__(self, value):
            return sum((one(value) for one in self.inner), value)

    compiler = SimpleNamespace(is_compiling=lambda: False)
    monkeypatch.setitem(sys.modules, "torch.nn.modules.module", SimpleNamespace(Module=Module))
    monkeypatch.setitem(sys.modules, "torch.compiler", compiler)
    outer, heard = Module(Module(), Module()), []
    call = Module.__call__
    stop = MODEL_CALLED.listen(heard.append, never)
    assert outer(1) == 3
    assert heard == [outer]
    stop()
    assert Module.__call__ is call
    compiler.is_compiling = lambda: True
    stop = MODEL_CALLED.listen(heard.append, never)
    outer(1)
    assert heard == [outer]
    stop()


def test_a_replayed_graph_is_told(monkeypatch):
    class CUDAGraph:
        def replay(self):
            self.replays = getattr(self, "replays", 0) + 1

    monkeypatch.setitem(sys.modules, "torch.cuda.graphs", SimpleNamespace(CUDAGraph=CUDAGraph))
    heard, graph, replay = [], CUDAGraph(), CUDAGraph.replay
    stop = GRAPH_REPLAYED.listen(heard.append, never)
    graph.replay()
    stop()
    assert (heard, graph.replays, CUDAGraph.replay) == ([graph], 1, replay)


BESIDE_ITS_OWN = """
import sys
from pinchpoint.inside.after_function import after_function

seen, heard = set(), []
sys.setprofile(own := lambda frame, event, argument: seen.add(frame.f_code.co_name))
after_function("step", lambda: heard.append(1), lambda what, error: sys.exit(str(error)))


def step():
    pass


for _ in range(3):
    step()
assert len(heard) == 3, heard
assert sys.getprofile() is own
assert "step" in seen
"""


def test_a_function_of_the_script_is_heard_beside_the_programs_profile_function():
    subprocess.run([sys.executable, "-c", BESIDE_ITS_OWN], check=True, timeout=60)
