"""Work that gives what was there, or what nobody reads, told by what flows where."""

import pytest

from pinchpoint.capture.flow.work import STEPS, RepeatedWork

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)


@pytest.fixture
def told():
    """Names of operations in vain and how many of them, by kind: ``told(step, model=None)``."""

    def look(step, model=None):
        work = RepeatedWork()
        work.begin()
        for number in range(STEPS):
            if model is not None:
                work.seen_model(model)
            step(number)
            notes = work.step_ends()
        assert not work.watches
        assert torch._C._len_torch_dispatch_stack() == 0
        assert "numpy" not in torch.Tensor.__dict__
        assert "data_ptr" not in torch.Tensor.__dict__
        found = {}
        for note in notes:
            for one in note["operations"]:
                times = sum(last - first + 1 for first, last in one["which"])
                kind = found.setdefault(note["kind"], {})
                name = one["name"].removeprefix("aten::")
                kind[name] = kind.get(name, 0) + times
        look.notes, look.why_not = notes, work.why_not
        return found

    return look


def matrix(size=8):
    return torch.arange(1.0, size * size + 1).view(size, size) / size**2 + torch.eye(size) * size


# ------------------------------------------------------------------------------------------------
# What is there already.


def test_what_is_made_of_the_same_in_each_step_is_named_with_its_line(told):
    kept = matrix()

    def factor():
        return torch.linalg.cholesky(kept @ kept.T)

    def step(number):
        x = torch.randn(4, 8)
        (x @ factor()).sum().item()

    found = {"mm": 1, "linalg_cholesky_ex": 1, "_linalg_check_errors": 1}
    assert told(step) == {"step": found}
    (note,) = told.notes
    assert note["places"][0][2] == "factor"  # the line that calls it does other work, too
    assert note["kept_bytes"] == 8 * 8 * 4 + 4  # the factor, and whether it worked
    assert note["steps_ratio"] == 1.0


def test_what_is_made_again_within_a_step_while_weights_change(told):
    weight = torch.nn.Parameter(matrix())
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step(number):
        x = torch.randn(4, 8)
        for _ in range(3):
            x = x @ weight.matrix_exp()
        x.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    found = told(step)
    assert found["within"]["linalg_matrix_exp"] == 2
    assert set(found) == {"within"}
    (note,) = told.notes
    assert (note["times"], note["of"]) == (2, 3)


def test_aliases_and_views_are_one_storage(told):
    kept = matrix()

    def step(number):
        x = torch.randn(4, 8)
        a = kept[:4].t().sin()
        b = kept.detach()[:4].t().sin()
        c = kept[4:].t().sin()  # another part
        (x @ a + x @ b + x @ c).sum().item()

    assert told(step) == {"step": {"sin": 3}, "within": {"mm": 1}}


def test_another_view_is_another_value_within_a_step(told):
    weight = torch.nn.Parameter(matrix())

    def step(number):
        x = torch.randn(4, 8)
        with torch.no_grad():
            weight.add_(x.mean())
            (weight[:4].sin() @ x.t() + weight[:4].sin() @ x.t()).sum().item()
            (weight[4:].cos() @ x.t()).sum().item()

    found = told(step)
    assert found["within"]["sin"] == 1
    assert "cos" not in found["within"]


CHANGES = {
    "in place": lambda kept, x: kept.add_(x.mean()),
    "through a view": lambda kept, x: kept[:1].add_(x.mean()),
    "by out=": lambda kept, x: torch.add(kept, x.mean(), out=kept),
    "by a list": lambda kept, x: torch._foreach_add_([kept], 1.0),
    "by numpy": lambda kept, x: kept.numpy().__iadd__(1.0),
    "by data": lambda kept, x: kept.data.mul_(1.5),
}


@pytest.mark.parametrize("how", CHANGES)
def test_what_is_changed_is_another_value(told, how):
    kept = matrix()

    def step(number):
        x = torch.randn(4, 8)
        (x @ kept.sin().cos()).sum().item()
        CHANGES[how](kept, x)

    assert told(step) == {}


def test_what_is_changed_afterwards_is_no_answer_to_keep(told):
    kept = matrix()

    def step(number):
        state = kept.sin()
        state.add_(torch.randn(8))
        state.sum().item()
        cache = torch.zeros(4, 8)
        cache[0] = state[0]
        cache.sum().item()

    assert told(step) == {}


RANDOM = {
    "rand": lambda kept: torch.rand(8, 8),
    "dropout": lambda kept: torch.dropout(kept, 0.5, True),
    "bernoulli": lambda kept: kept.clone().bernoulli_(0.5),
    "in place": lambda kept: torch.empty(8, 8).normal_(),
    "permutation": lambda kept: kept[torch.randperm(8)],
}


@pytest.mark.parametrize("how", RANDOM)
def test_what_is_random_is_new(told, how):
    kept = matrix()

    def step(number):
        (torch.randn(4, 8) @ RANDOM[how](kept).sin()).sum().item()

    assert told(step) == {}


def test_what_drops_nothing_is_not_random(told):
    kept = matrix().view(1, 1, 8, 8)

    def step(number):
        answer = torch.nn.functional.scaled_dot_product_attention(kept, kept, kept)
        (torch.randn(4, 8) @ answer[0, 0]).sum().item()

    (name,) = told(step)["step"]
    assert name.startswith("_scaled_dot_product")


def test_storages_that_lie_where_others_lay_are_others(told):
    def step(number):
        for turn in range(4):
            x = torch.full((64,), float(number * 4 + turn))  # each where the last one was
            x.sin().sum().item()

    assert told(step) == {}


def test_what_a_checkpoint_computes_again_is_no_repeat(told):
    from torch.utils.checkpoint import checkpoint

    layer = torch.nn.Linear(8, 8)

    def step(number):
        x = torch.randn(4, 8, requires_grad=True)
        checkpoint(lambda t: layer(t).sin().cos(), x, use_reentrant=False).sum().backward()
        with torch.no_grad():
            layer.weight -= 0.1 * layer.weight.grad
        layer.zero_grad()

    assert not told(step, layer).keys() & {"step", "within"}


def test_the_end_of_what_a_checkpoint_computes_again_is_no_waste(told):
    from torch.utils.checkpoint import checkpoint

    layer = torch.nn.Linear(8, 8)

    def step(number):
        x = torch.randn(4, 8, requires_grad=True)
        for _ in range(2):
            x = checkpoint(lambda t: torch.nn.functional.gelu(layer(t)), x, use_reentrant=True)
        x.square().mean().backward()
        with torch.no_grad():
            layer.weight -= 0.1 * layer.weight.grad
        layer.zero_grad()

    assert "gelu" not in told(step, layer).get("unused", {})


def training(batch):
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(layer.parameters())

    def step(number):
        x = batch(number)
        mask = torch.ones(4, 4).tril()
        scaled = (x - x.mean()) / x.std()
        loss = (mask @ layer(scaled)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()

    return layer, step


def test_one_batch_for_all_steps_is_a_measurement(told):
    x = torch.randn(4, 8)
    layer, step = training(lambda number: x.clone())
    assert told(step, layer).get("step", {}).keys() <= {"tril", "ones"}


def test_a_mask_is_made_anew_in_each_step_of_other_batches(told):
    layer, step = training(lambda number: torch.randn(4, 8))
    assert told(step, layer)["step"] == {"ones": 1, "tril": 1}


def test_a_loop_that_repeats_all_it_does_is_a_measurement(told):
    layer, x = torch.nn.Linear(8, 8), torch.randn(4, 8)

    def step(number):
        with torch.no_grad():
            layer(x).sin().cos().sum().item()

    assert told(step, layer) == {}


def test_a_table_that_is_most_of_the_bytes_of_a_search_is_no_measurement(told):
    """Of 14 operations of a new question 3 are of the passages, which are nearly all that a step
    writes: 1 MiB, of a question's 4 KiB."""
    layer, passages = torch.nn.Linear(64, 64), torch.randn(4096, 64)

    def step(number):
        with torch.no_grad():
            question = torch.randn(1, 64)
            asked = torch.nn.functional.normalize(layer(question).sin().cos().tanh().exp())
            table = torch.nn.functional.normalize(passages)
            (asked @ table.T).topk(3).values.sum().item()

    # The norms, their floor, and what is divided by them.
    assert sum(told(step, layer)["step"].values()) == 3


def test_weights_that_are_merged_at_each_use(told):
    layer, low = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    x = torch.randn(4, 8)

    def step(number):
        with torch.no_grad():
            weight = layer.weight + low.weight @ low.weight
            torch.nn.functional.linear(x, weight).sum().item()

    def both(number):
        step(number)

    layer.low = low
    assert told(both, layer) == {"step": {"mm": 1, "add": 1}}


def test_tokens_that_come_anew_with_the_same_values(told):
    table = torch.nn.Embedding(16, 8)

    def step(number):
        text = torch.tensor([[3, 1, 4, 1, 5]])
        with torch.no_grad():
            (torch.randn(5) @ table(text)[0].sin()).sum().item()

    assert told(step, table)["step"].keys() == {"embedding", "sin"}


def test_a_mask_of_ones_that_comes_with_each_batch_may_be_another_one(told):
    import numpy as np

    def step(number):
        mask = torch.from_numpy(np.ones((4, 8), np.float32))
        hidden = (1 - mask) * -1e4
        (torch.randn(4, 8) + hidden).sum().item()

    assert told(step) == {}


def test_what_is_new_in_a_third_of_the_steps_counts_as_often(told):
    state = {}

    def step(number):
        if number in (0, 3):
            state["picture"] = torch.randn(8, 8)
        (torch.randn(4, 8) @ state["picture"].sin()).sum().item()

    assert told(step) == {"step": {"sin": 1}}
    assert told.notes[0]["steps_ratio"] == 0.8


# ------------------------------------------------------------------------------------------------
# What nobody reads.


def test_what_is_computed_and_dropped(told):
    layer, head = torch.nn.Linear(8, 64), torch.nn.Linear(64, 8)
    optimizer = torch.optim.SGD([*layer.parameters()], lr=0.1)

    def step(number):
        hidden = layer(torch.randn(4, 8))
        scores = head(hidden).softmax(-1)
        del scores
        hidden.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    assert told(step, layer) == {"unused": {"addmm": 1, "_softmax": 1}}
    note = next(n for n in told.notes if n["kind"] == "unused")
    assert note["places"][0][2] == "step"


def test_gradients_that_a_function_computes_for_what_needs_none(told):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            return grad @ weight.T, (x.T @ grad).exp()

    weight, layer = matrix(), torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(number):
        Product.apply(layer(torch.randn(4, 8)), weight).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    found = told(step, layer)["unused"]
    assert found == {"mm": 1, "exp": 1}
    note = next(n for n in told.notes if n["kind"] == "unused")
    assert note["backward"]
    assert note["places"][0][2] == "backward"


def test_a_metric_that_is_shown_now_and_then(told):
    layer, scores = torch.nn.Linear(8, 8), torch.randn(300)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(number):
        loss = layer(torch.randn(64, 8)).square().mean()  # shown by nobody, and needed
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scores.add_(loss.detach())
        area = scores.sort().values.cumsum(0).mean()
        if number % 50 == 7:
            area.item()

    assert told(step, layer) == {"unused": {"sort": 1, "cumsum": 1, "mean": 1}}


def test_what_only_a_part_is_read_of(told):
    layer = torch.nn.Linear(8, 8)

    def step(number):
        with torch.no_grad():
            x = layer(torch.randn(6, 8))
            variance = (x @ x.t()).diagonal().sqrt()  # 6 of 36
            last = layer(x.sin())[-1].cos()  # one row of six
            both = layer(x.exp())
            halves = both[:, :4] * both[:, 4:]  # all of it
            most = layer(x.tanh())[:-1].cos()
            (variance.sum() + last.sum() + halves.sum() + most.sum()).item()

    assert told(step, layer) == {"part": {"mm": 1, "addmm": 1, "sin": 1}}  # of the one row
    assert sorted(note["read_ratio"] for note in told.notes) == [0.166667, 0.166667]
    assert {note["places"][0][2] for note in told.notes} == {"step"}


READERS = {
    "item": lambda y: y.sum().item(),
    "numpy": lambda y: y.numpy().sum(),
    "list": lambda y: y.tolist(),
    "pointer": lambda y: y.data_ptr(),
    "dlpack": lambda y: torch.utils.dlpack.from_dlpack(y),
    "copy": lambda y: torch.zeros(8, 8).copy_(y).numpy(),
    "sizes": lambda y: y.nonzero().shape[0],
}


@pytest.mark.parametrize("how", READERS)
def test_what_the_host_reads_is_used(told, how):
    layer = torch.nn.Linear(8, 8)

    def step(number):
        x = torch.randn(8, 8)
        with torch.no_grad():
            READERS[how](layer(x).sin())
            layer(x).cos().numpy()

    assert "unused" not in told(step, layer)


def test_what_is_kept_for_later_is_used(told):
    layer = torch.nn.Linear(8, 8)
    kept, total = [], torch.zeros(8)

    def step(number):
        with torch.no_grad():
            y = layer(torch.randn(4, 8))
            kept.append(y.sin())
            total.add_(y.cos().sum(0))

    assert "unused" not in told(step, layer)


def test_gradients_that_wait_for_their_optimizer_are_used(told):
    layer = torch.nn.Linear(8, 8)

    def step(number):  # a foreign optimizer, whose reading is not seen
        layer(torch.randn(4, 8)).square().mean().backward()
        layer.zero_grad()

    assert "unused" not in told(step, layer)


def test_memory_that_something_unseen_wrote_makes_reading_unsure(told):
    import ctypes

    layer = torch.nn.Linear(8, 8)
    pointers = torch._C.TensorBase.data_ptr  # not the method that is watched

    def step(number):
        with torch.no_grad():
            x = layer(torch.randn(8, 8)).sin()
            out = torch.empty(8, 8)
            ctypes.memmove(pointers(out), pointers(x), 256)
            out.sum().item()
            layer(torch.randn(8, 8)).numpy()

    assert "unused" not in told(step, layer)


def test_a_measurement_reads_nothing(told):
    layer = torch.nn.Linear(8, 8)

    def step(number):
        with torch.no_grad():
            layer(torch.randn(4, 8)).sin().cos()

    assert told(step, layer) == {}


# ------------------------------------------------------------------------------------------------
# The program comes first.


def test_a_program_with_a_mode_of_its_own_is_left_alone(told):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Own(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Own():
        work = RepeatedWork()
        work.begin()
        assert not work.watches
        assert work.why_not == "a mode of the dispatcher is there already"
        assert torch._C._len_torch_dispatch_stack() == 1
    work = RepeatedWork()
    work.begin()
    with Own() as own:
        work.end()
        assert torch._C._len_torch_dispatch_stack() == 1
        assert torch._C._get_dispatch_stack_at(0) is own
    assert torch._C._len_torch_dispatch_stack() == 0


def test_nothing_is_watched_where_the_device_is_full(monkeypatch):
    monkeypatch.setattr("pinchpoint.capture.flow.watch.free_bytes", lambda _: 1 << 20)
    work = RepeatedWork()
    work.begin()
    assert not work.watches
    assert work.why_not == "less than 128 MiB of the device are free"


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_hears_of_nothing():
    import os

    work = RepeatedWork()
    work.begin()
    child = os.fork()
    if not child:
        watch = work._watch
        torch.ones(3).sin()
        os._exit(0 if watch.steps == [[]] and watch.why_not else 1)
    assert os.waitpid(child, 0)[1] == 0
    torch.ones(3).sin()
    assert [one.kind.name for one in work._watch.steps[0]] == ["aten::ones", "aten::sin"]
    work.end()


@pytest.mark.parametrize("beside", [False, True])
def test_threads_that_may_read_what_nobody_else_reads_are_noted(beside):
    import threading

    def waits():
        over.wait()

    over, work, kept = threading.Event(), RepeatedWork(), matrix()
    other = threading.Thread(target=waits)
    if beside:
        other.start()
    work.begin()
    for _ in range(STEPS):
        x = torch.randn(4, 8) @ kept
        x.sin()
        x.sum().item()
        notes = work.step_ends()
    over.set()
    (note,) = notes
    assert (note["kind"], note["beside_threads"]) == ("unused", beside)


def test_a_watch_that_another_thread_ends_leaves_the_program_alone():
    import threading

    work = RepeatedWork()
    work.begin()
    watch = work._watch
    other = threading.Thread(target=work.end)
    other.start()
    other.join()
    assert torch.ones(3).sin().shape == (3,)
    assert watch.steps == [[]]
    watch._mode = torch._C._get_dispatch_stack_at(0)
    watch.end()
    assert torch._C._len_torch_dispatch_stack() == 0


def test_too_many_operations_end_the_watch(told, monkeypatch):
    monkeypatch.setattr("pinchpoint.capture.flow.watch.MOST_OPERATIONS", 5)
    kept = matrix()

    def step(number):
        for _ in range(9):
            (torch.randn(4, 8) @ kept.sin()).sum().item()

    assert told(step) == {}
    assert "too many" in told.why_not


def test_a_watch_that_takes_too_long_ends(told, monkeypatch):
    monkeypatch.setattr("pinchpoint.capture.flow.watch.MOST_IN_ALL_NS", 1)
    kept = matrix()
    assert told(lambda number: (torch.randn(4, 8) @ kept.sin()).sum().item()) == {}
    assert "too long" in told.why_not


def test_errors_of_the_program_are_its_own(told):
    def step(number):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            torch.randn(2, 3) @ torch.randn(2, 3)

    assert told(step) == {}


def test_no_tensor_is_kept_alive(told):
    import weakref

    alive = []

    def step(number):
        x = torch.randn(64, 64)
        alive.append(weakref.ref(x.sin().untyped_storage()))
        assert all(ref() is None for ref in alive)

    told(step)


def test_a_program_computes_what_it_computes_unwatched():
    def trained(watch):
        torch.manual_seed(0)
        layer = torch.nn.Sequential(
            torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 8)
        )
        optimizer = torch.optim.AdamW(layer.parameters())
        work, losses = RepeatedWork(), []
        if watch:
            work.begin()
        for _ in range(STEPS):
            x = torch.randn(4, 8)
            loss = layer(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if watch:
                work.step_ends()
        return losses, [p.detach().clone() for p in layer.parameters()]

    (plain, weights), (seen, others) = trained(watch=False), trained(watch=True)
    assert plain == seen
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))


def test_gradients_are_stored_without_a_copy(told):
    weight = torch.nn.Parameter(matrix())
    seen = []

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            made = grad * 2
            seen.append(torch._C.TensorBase.data_ptr(made))
            return made

    def step(number):
        Identity.apply(weight).square().sum().backward()
        weight.grad = None

    def kept(number):
        Identity.apply(weight).sum().backward()
        assert torch._C.TensorBase.data_ptr(weight.grad) == seen[-1]
        weight.grad = None

    told(step)
    told(kept)


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_what_is_made_again_in_each_step_of_a_request_though_another_begins_meanwhile(told, mode):
    """A new request encodes its own input, with operators of the same kind and shapes."""
    keys, encoder = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    held = {}

    def step(number):
        with getattr(torch, mode)():
            if number in (0, 3):
                held["audio"] = encoder(torch.randn(64, 8))
            return torch.randn(4, 8) @ keys(held["audio"]).T

    assert told(step)["step"] == {"addmm" if mode == "no_grad" else "linear": 1}


@pytest.mark.parametrize("grows", [True, False])
def test_a_longer_cache_is_something_new_where_the_same_token_comes_again(told, grows):
    """A model that has not learnt says one token again and again, to a cache that grows."""
    keys, audio = torch.nn.Linear(8, 8), torch.randn(64, 8)
    token, cache = torch.randn(1, 8), torch.zeros(16, 8)

    def step(number):
        with torch.no_grad():
            at = number if grows else 0
            cache[at] = token[0] * 2
            mixed = (token @ cache[: at + 1].T).softmax(-1) @ cache[: at + 1]
            return mixed @ keys(audio).T

    assert ("addmm" in told(step).get("step", {})) == grows


def test_torch_imports_no_compiler_for_it():
    """It would for the first operation in a mode, in the middle of the program's step: seconds."""
    program = """
import sys, torch
from pinchpoint.capture.flow.work import RepeatedWork
layer, flow = torch.nn.Linear(3, 3), RepeatedWork()
flow.begin()
with torch.no_grad():
    layer(torch.ones(2, 3))
print(bool(flow.watches), "torch._dynamo" in sys.modules)
flow.end()
"""
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "True False", done.stderr


# ------------------------------------------------------------------------------------------------
# What is handed from step to step, in another order.


def _search(order_of, kept, *, alike=True):
    """A step of a beam search: keys of an encoder's answer are computed from rows in the order of
    the beams; scores and history go on."""
    torch.manual_seed(0)
    weight = torch.rand(64, 128)
    memory = torch.rand(1, 40, 64).repeat_interleave(3, 0) if alike else torch.rand(3, 40, 64)
    state = {"memory": memory, "query": torch.rand(3, 1, 64)}

    def step(number):
        keys = state["memory"] @ weight
        seen = torch.softmax(state["query"] @ keys[..., :64].transpose(1, 2), -1)
        state["query"] = torch.tanh(seen @ keys[..., 64:] + state["query"])
        order = order_of(number, state["query"])
        for name in kept:
            state[name] = state[name].index_select(0, order)

    return step


def _by_length(number, query):
    return query.norm(dim=(1, 2)).argsort()


def test_what_is_computed_from_like_rows_in_another_order_is_there_already(told):
    with torch.inference_mode():
        found = told(_search(_by_length, ("memory", "query")))
    assert found["step"] == {"matmul": 1}
    [note] = [one for one in told.notes if one["kind"] == "step"]
    assert note["kept_bytes"] == 3 * 40 * 128 * 4


def test_of_unlike_rows_it_is_not(told):
    def in_turn(number, query):
        return torch.tensor([1, 2, 0])

    step = _search(in_turn, ("memory", "query"), alike=False)
    with torch.inference_mode():
        assert "step" not in told(step)


def test_a_running_mean_does_not_make_repeated_batches_new(told):
    """A training step on one batch: a measurement, in which what is made of the batch is the same
    each time."""
    torch.manual_seed(0)
    x, frozen = torch.rand(256, 64), torch.rand(64, 64)
    model = torch.nn.Linear(64, 64)
    mean = [torch.zeros(64, 64)]

    def step(number):
        loss = model(torch.relu(x @ frozen)).square().mean()
        loss.backward()
        with torch.no_grad():
            for one in model.parameters():
                one -= 0.1 * one.grad
                one.grad = None
        mean[0] = mean[0] * 0.9 + loss.detach()

    assert "step" not in told(step, model)
