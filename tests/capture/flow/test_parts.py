"""How much is read of what operations give, told by what flows where."""

import pytest

from pinchpoint.capture.flow.parts import COUNT_RATIO, SELECTION_RATIO
from pinchpoint.capture.flow.work import MOST_WATCHES, STEPS, RepeatedWork

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)


@pytest.fixture
def partly():
    """Of each group of operations: their names, what is read and what is needed of it."""

    def look(step):
        work = RepeatedWork()
        work.begin()
        for _ in range(STEPS):
            step()
            notes = work.step_ends()
        assert not work.why_not
        look.times = [note["times"] for note in notes if note["kind"] == "part"]
        return [
            (
                sorted(one["name"].removeprefix("aten::") for one in note["operations"]),
                note["read_ratio"],
                note["left_ratio"],
            )
            for note in notes
            if note["kind"] == "part"
        ]

    return look


def layers():
    return torch.nn.Sequential(
        torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 128)
    )


def test_copies_to_another_type_in_inference_mode(partly):
    """There the dispatcher is told of ``aten::to``, and not of what it becomes."""
    head, table = torch.nn.Linear(16, 128, dtype=torch.bfloat16), torch.randn(4, 32, 16)

    @torch.inference_mode()
    def step():
        scores = head((table * torch.rand(1)).bfloat16()).float().float()
        scores[torch.arange(4), torch.randint(32, (4,))].log_softmax(-1).tolist()

    names, *ratios = partly(step)[0]
    assert "_to_copy" in names
    assert "to" not in names
    assert ratios == [1 / 32, 1 / 32]


def test_scores_of_all_positions_through_what_works_on_each(partly):
    head = layers()

    def step():
        with torch.no_grad():
            scores = torch.softmax(head(torch.randn(4, 32, 16)).double() / 0.8, -1)
            scores[:, -1].argmax(-1).tolist()

    names = ["_softmax", "_to_copy", "addmm", "addmm", "div", "native_layer_norm", "relu"]
    assert partly(step) == [(names, 1 / 32, 1 / 32)]


def test_rows_that_are_padded_to_other_widths_in_each_step(partly):
    head, width = layers(), iter(range(20, 40))

    def step():
        with torch.no_grad():
            head(torch.randn(4, next(width), 16))[:, -1].argmax(-1).tolist()

    names = ["addmm", "native_layer_norm", "relu"]  # all calls of addmm are one entry then
    assert partly(step) == [(names, round(1 / 24, 6), round(1 / 24, 6))]  # of the fifth step


def test_layers_that_some_steps_leave_out(partly):
    head, steps = layers(), iter(range(20, 40))

    def step():
        width = next(steps)
        with torch.no_grad():
            x = torch.randn(4, width, 16)
            for _ in range(width % 2):
                x = head[0](x)
            head(x)[:, -1].argmax(-1).tolist()

    ((names, _, _),) = partly(step)
    assert names == ["native_layer_norm", "relu"]  # which products are the same ones is not known


def test_chosen_before_they_are_computed(partly):
    head = layers()

    def step():
        with torch.no_grad():
            torch.softmax(head(torch.randn(4, 32, 16)[:, -1]), -1).argmax(-1).tolist()

    assert partly(step) == []


def training(step, *modules):
    """A step that ends with a backward pass from what ``step`` gives."""
    parameters = [p for module in modules for p in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def run():
        step().backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def test_rows_that_have_no_gradient(partly):
    head = layers()

    def step():
        scores = head(torch.randn(4, 32, 16))[:, -1]
        return torch.nn.functional.cross_entropy(scores, torch.zeros(4, dtype=torch.long))

    names = ["addmm", "addmm", "native_layer_norm", "relu"]
    assert partly(training(step, head)) == [(names, 1 / 32, 1 / 32)]


def test_chances_of_the_last_tokens_are_read_in_two_passes(partly):
    head, targets = torch.nn.Linear(16, 64, bias=False), torch.arange(4 * 32).view(4, 32) % 64

    def chances():
        scores = head(torch.randn(4, 32, 16)).double().log_softmax(-1)
        return scores.gather(-1, targets.unsqueeze(-1)).squeeze(-1)[:, -8:]

    def step():
        with torch.no_grad():
            before = chances()
        now = chances()
        return -(now - before).exp().mean()

    names = ["_log_softmax", "_to_copy", "gather", "mm"]  # one line, which both passes run
    assert partly(training(step, head)) == [(names, 1 / 4, 1 / 4)]
    assert partly.times == [8]


def test_the_largest_sums_of_rows_are_needed_where_rows_are(partly):
    head, targets = torch.nn.Linear(16, 64, bias=False), torch.arange(4 * 32).view(4, 32) % 64

    def step():
        scores = head(torch.randn(4, 32, 16))
        told = scores.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - scores.logsumexp(-1)
        return -told[:, -8:].mean()

    names = ["gather", "logsumexp", "mm", "sub"]
    assert partly(training(step, head)) == [(names, 1 / 4, 1 / 4)]


def test_what_is_changed_in_place_is_read_as_far_as_it_is_read_afterwards(partly):
    head = torch.nn.Linear(16, 64, bias=False)

    def step():
        with torch.no_grad():
            scores = head(torch.randn(4, 32, 16))
            scores.div_(0.8)
            scores[:, -8:].softmax(-1).sum().item()

    assert partly(step) == [(["div_", "mm"], 1 / 4, 1 / 4)]


@pytest.mark.parametrize(
    "change", [lambda x: x[:, :4].mul_(2), lambda x: x.cumsum_(1), lambda x: x.copy_(x.sin())]
)
def test_what_is_changed_in_another_way_is_needed_as_a_whole(partly, change):
    head = torch.nn.Linear(16, 64, bias=False)

    def step():
        with torch.no_grad():
            scores = head(torch.randn(4, 32, 16))
            change(scores)
            scores[:, -8:].sum().item()

    assert not [note for note in partly(step) if "mm" in note[0]]


def test_what_is_read_before_it_is_changed(partly):
    head = torch.nn.Linear(16, 64, bias=False)

    def step():
        with torch.no_grad():
            scores = head(torch.randn(4, 32, 16))
            scores.max().item()
            scores.div_(0.8)
            scores[:, -8:].sum().item()

    assert partly(step) == []


def test_rows_that_a_mask_chooses_before_a_loss(partly):
    head, mask = torch.nn.Linear(16, 64), torch.arange(128) % 8 == 0

    def step():
        return torch.nn.functional.silu(head(torch.randn(128, 16)))[mask].square().mean()

    assert partly(training(step, head)) == [(["addmm", "silu"], 1 / 8, 1 / 8)]


GRADIENTS_OF_ALL = {
    "a loss of all positions beside": lambda scores: scores[:, -1].sum() + scores.square().mean(),
    "labels that are ignored": lambda scores: torch.nn.functional.cross_entropy(
        scores.flatten(0, 1), torch.full((128,), -100).index_fill(0, torch.arange(4), 1)
    ),
    "a softmax across the rows": lambda scores: scores.softmax(1)[:, -1].square().sum(),
    "halves that are read apart": lambda scores: (
        (scores * 2)[:, :16].square().mean() + (scores * 3)[:, 16:].square().mean()
    ),
    "rows that several selections share out": lambda scores: sum(
        scores.flatten(0, 1).index_select(0, some).square().mean()
        for some in torch.randperm(128).chunk(8)
    ),
    "a sum of rows before": lambda scores: scores.cumsum(1)[:, -1].square().mean(),
}


@pytest.mark.parametrize("how", GRADIENTS_OF_ALL)
def test_rows_that_have_gradients(partly, how):
    head = torch.nn.Linear(16, 64)
    step = training(lambda: GRADIENTS_OF_ALL[how](head(torch.randn(4, 32, 16))), head)
    assert not [note for note in partly(step) if "addmm" in note[0]]


def test_the_last_of_many_layers(partly):
    body = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(4))
    head = torch.nn.Linear(16, 64)

    def step():
        x = torch.randn(4, 32, 16)
        for layer in body:
            x = layer(x.cumsum(1)).relu()  # as attention: a row needs those before it
        return head(x)[:, -1].square().mean()

    assert partly(training(step, body, head)) == [(["addmm"], 1 / 32, 1 / 32)]  # of the head


def test_columns_need_all_of_the_rows(partly):
    head = layers()

    def step():
        with torch.no_grad():
            head(torch.randn(4, 32, 16))[..., :8].sum().item()

    assert partly(step) == [(["addmm"], 8 / 128, 8 / 128)]


def test_rows_that_a_mask_chooses(partly):
    head = torch.nn.Linear(16, 128)
    mask = torch.arange(128) % 8 == 0

    def step():
        with torch.no_grad():
            head(torch.randn(128, 16))[mask].sum().item()

    assert partly(step) == [(["addmm"], 1 / 8, 1 / 8)]


TAKEN = {
    "the first of a sort": (lambda x: x.sort().values[:10].sum(), ["sort"], SELECTION_RATIO),
    "places of the largest": (lambda x: x[x.argsort()[-10:]].sum(), ["sort"], SELECTION_RATIO),
    "a few of a permutation": (
        lambda x: x[torch.randperm(len(x))[:10]].sum(),
        ["randperm"],
        0.01,
    ),
}


@pytest.mark.parametrize("how", TAKEN)
def test_a_few_of_what_is_put_in_order(partly, how):
    take, names, left = TAKEN[how]
    assert partly(lambda: take(torch.randn(1000)).item()) == [(names, 0.01, round(left, 6))]


WHOLE = {
    "a selection": lambda x: x.topk(10).values.sum(),
    "all of a permutation, in pieces": lambda x: sum(
        x[some].sum() for some in torch.randperm(len(x)).chunk(8)
    ),
    "half of a sort": lambda x: x.sort().values[: len(x) // 2].sum(),
    "places of a sort that something tells": lambda x: (
        x.sort().values[x.abs().topk(3).indices].sum()
    ),
    "a cumulative sum": lambda x: x.cumsum(0)[:10].sum(),
    "all of it as well": lambda x: (y := x.sin())[:10].sum() + y.max(),
    "the program itself": lambda x: torch.tensor(sum((y := x.sin()).tolist())) + y[:10].sum(),
    "two halves": lambda x: (y := x.exp())[:500].prod() * y[500:].sum(),
}


@pytest.mark.parametrize("how", WHOLE)
def test_what_is_needed_as_a_whole(partly, how):
    assert partly(lambda: WHOLE[how](torch.randn(1000)).item()) == []


def test_what_is_kept_for_the_next_step(partly):
    kept = [torch.zeros(1000)]

    def step():
        kept[0].sum().item()
        kept[0] = torch.randn(1000).sin()
        kept[0][:10].sum().item()

    assert partly(step) == []


SEARCHES = {
    "nonzero": lambda order, own: (order == own).nonzero()[:, 1],
    "argmax": lambda order, own: (order == own).int().argmax(1),
}


@pytest.mark.parametrize("how", SEARCHES)
def test_an_order_in_which_one_place_is_looked_for(partly, how):
    def step():
        scores, own = torch.randn(8, 400), torch.randint(0, 400, (8, 1))
        SEARCHES[how](scores.argsort(1, descending=True), own).sum().item()

    assert partly(step) == [(["sort"], 1 / 400, COUNT_RATIO)]


OTHER_ORDERS = {
    "its keys are read too": lambda keys, places, own: (
        (places == own).nonzero()[:, 1].sum() + keys.cumsum(1).sum()
    ),
    "its places are read too": lambda keys, places, own: (
        (places == own).nonzero()[:, 1].sum() + places.float().diff().sum()
    ),
    "places of all are asked": lambda keys, places, own: (
        (places == places.flip(1)).nonzero()[:, 1].sum()
    ),
    "compared, and not searched": lambda keys, places, own: (places == own).double().mean(),
}


@pytest.mark.parametrize("how", OTHER_ORDERS)
def test_an_order_that_is_needed(partly, how):
    def step():
        scores, own = torch.randn(8, 400), torch.randint(0, 400, (8, 1))
        OTHER_ORDERS[how](*scores.sort(1), own).item()

    assert partly(step) == []


def reordering(*, read, keep=12):
    """Rows of a cache are put in another order in each step, after one more place is filled."""
    state = {"cache": torch.zeros(8, 4, 64, 4), "at": keep}

    def step():
        at = state["at"]
        with torch.no_grad():
            state["cache"][:, :, at : at + 1] = torch.randn(8, 4, 1, 4)
            read(state["cache"], at)
            state["cache"] = state["cache"].index_select(0, torch.randint(8, (8,)))
            state["at"] += 1

    return step


def test_a_cache_whose_empty_rest_is_put_in_order_too(partly):
    step = reordering(read=lambda cache, at: cache[:, :, : at + 1].sum().item())
    # What is read of it now and in the next step: 18 of 64 places, not 17 and 18 together.
    assert partly(step) == [(["index_select"], round(18 / 64, 6), round(18 / 64, 6))]


def in_place(*, read, source=lambda held: held):
    """The same, put in order in the memory that the cache has."""
    state = {"cache": torch.zeros(8, 4, 64, 4), "at": 12}

    def step():
        cache, at = state["cache"], state["at"]
        with torch.no_grad():
            cache[:, :, at : at + 1] = torch.randn(8, 4, 1, 4)
            read(cache, at)
            held = cache[:, :, :None]
            held.copy_(source(held).index_select(0, torch.randint(8, (8,))))
            state["at"] += 1

    return step


def test_a_cache_that_is_put_in_order_in_its_own_memory(partly):
    step = in_place(read=lambda cache, at: cache[:, :, : at + 1].sum().item())
    assert partly(step) == [
        (["copy_", "index_select"], round(18 / 64, 6), pytest.approx(18 / 64, rel=0.01))
    ]


def test_a_cache_in_its_own_memory_that_is_read_to_its_end(partly):
    assert partly(in_place(read=lambda cache, at: cache.sum().item())) == []


def test_what_is_put_into_memory_that_stays_may_be_read_by_others(partly):
    """As what a replayed graph is given."""
    other = torch.randn(8, 4, 64, 4)
    step = in_place(read=lambda cache, at: cache[:, :, :8].sum(), source=lambda held: other)
    assert partly(step) == []


def test_a_sequence_that_ends_among_the_steps_leaves_its_cache_in_part_unread():
    """The step of its last token puts nothing in order: other steps are watched, of which none is
    such a one."""
    work, state = RepeatedWork(MOST_WATCHES), {"cache": torch.zeros(8, 4, 64, 4), "at": 12}

    def step(last):
        with torch.no_grad():
            at, cache = state["at"], state["cache"]
            cache[:, :, at : at + 1] = torch.randn(8, 4, 1, 4)
            cache[:, :, : at + 1].sum().item()
            state["at"] = 12 if last else at + 1
            if not last:
                state["cache"] = cache.index_select(0, torch.randint(8, (8,)))

    work.begin()
    watched = 0
    notes = None
    while notes is None:
        step(last=watched == 3)
        notes, watched = work.step_ends(), watched + 1
    assert watched == 2 * STEPS
    assert [note["kind"] for note in notes] == ["part"]


def test_steps_that_each_do_something_else_are_not_watched_for_ever():
    work, watched, notes = RepeatedWork(MOST_WATCHES), 0, None
    work.begin()
    while notes is None:
        drawn = torch.randn(8)
        (drawn.cumsum(0) if watched % 6 == 2 else drawn.abs()).max().item()
        notes, watched = work.step_ends(), watched + 1
    assert watched == MOST_WATCHES * STEPS
    assert notes == []


def test_a_cache_that_is_read_to_its_end(partly):
    assert partly(reordering(read=lambda cache, at: cache.sum().item())) == []


def test_a_cache_of_which_other_parts_are_read_in_turn(partly):
    """What is put in order now, a later step reads."""

    def read(cache, at):
        cache[:, :, 8 * (at % 8) : 8 * (at % 8) + 8].sum().item()

    assert partly(reordering(read=read)) == []


def test_a_cache_of_which_only_the_used_part_is_put_in_order(partly):
    cache = torch.zeros(8, 4, 64, 4)

    def step():
        with torch.no_grad():
            cache[:, :, :12] = cache[:, :, :12].index_select(0, torch.randint(8, (8,)))
            cache[:, :, :12].sum().item()

    assert partly(step) == []


def test_all_pages_of_a_table_of_which_few_are_in_use(partly):
    pages, table = torch.randn(64, 4, 8), torch.randperm(64).view(4, 16)

    def step():
        with torch.no_grad():
            pages[table].flatten(1, 2)[:, :10].sum().item()

    assert partly(step) == [(["index"], round(10 / 64, 6), round(10 / 64, 6))]


def test_a_copy_of_a_cache_that_is_written_to_and_read_in_part(partly):
    cache = torch.randn(8, 64, 4)

    def step():
        with torch.no_grad():
            mine = cache.clone()
            mine[:, 12] = torch.randn(8, 4)
            mine[:, :13].sum().item()

    ((names, read, _),) = partly(step)
    assert names == ["clone"]
    assert read == pytest.approx(13 / 64, rel=0.1)  # the place that is filled is counted, too


def test_a_copy_that_is_kept_is_read_later(partly):
    cache, kept = torch.randn(8, 64, 4), []

    def step():
        with torch.no_grad():
            kept.append(cache.clone())
            kept[-1][:, :13].sum().item()

    assert partly(step) == []
