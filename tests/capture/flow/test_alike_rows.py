"""Work on rows of a batch that are the same, told by what flows where."""

import pytest

from pinchpoint.capture.flow.work import STEPS, RepeatedWork

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="watches operations of torch")
    torch.set_num_threads(1)


@pytest.fixture
def alike():
    """Of each share of distinct rows, the names of the operations on such."""

    def look(step):
        work = RepeatedWork()
        work.begin()
        for _ in range(STEPS):
            with torch.no_grad():
                step()
            notes = work.step_ends()
        assert not work.why_not
        return {
            note["left_ratio"]: sorted(
                one["name"].removeprefix("aten::") for one in note["operations"]
            )
            for note in notes
            if note["kind"] == "alike"
        }

    return look


def encoder():
    head = torch.nn.Linear(16, 16)
    table = torch.nn.Embedding(64, 16)
    return lambda ids: torch.relu(head(torch.layer_norm(table(ids), (16,))))


ENCODED = ["addmm", "embedding", "native_layer_norm", "relu"]


@pytest.mark.parametrize(
    "spread",
    [
        lambda ids: ids.expand(8, -1),
        lambda ids: ids.repeat(8, 1),
        lambda ids: ids.repeat_interleave(8, 0),
        lambda ids: torch.tensor([ids[0].tolist()] * 8),
    ],
)
def test_one_question_for_eight_answers(alike, spread):
    encode = encoder()

    def step():
        asked = encode(spread(torch.randint(64, (1, 12))))
        answers = encode(torch.randint(64, (8, 12)))
        (asked.mean(1) * answers.mean(1)).sum().item()

    assert alike(step) == {1 / 8: ENCODED}


def test_two_prompts_for_four_beams_each(alike):
    encode = encoder()
    assert alike(
        lambda: encode(torch.randint(64, (2, 12)).repeat_interleave(4, 0)).sum().item()
    ) == {1 / 4: ENCODED}


def test_attention_of_rows_that_are_alike_into_an_empty_cache(alike):
    encode = encoder()

    def step():
        x = encode(torch.randint(64, (1, 12)).expand(8, -1))
        cache = torch.zeros(8, 20, 16)
        cache[:, :12] = x
        q, k = x[:, None], cache[:, None, :12]
        torch.nn.functional.scaled_dot_product_attention(q, k, k).sum().item()

    ((share, names),) = alike(step).items()
    assert share == 1 / 8
    assert any("scaled_dot_product" in name for name in names)


UNLIKE = {
    "rows of their own": lambda encode: encode(torch.randint(64, (8, 12))),
    "one token a row": lambda encode: encode(torch.zeros(8, 1, dtype=torch.long)),
    "few of them": lambda encode: encode(
        torch.cat([torch.randint(64, (6, 12)), torch.ones(2, 12, dtype=torch.long)])
    ),
    "one row": lambda encode: encode(torch.randint(64, (1, 12))),
}


@pytest.mark.parametrize("how", UNLIKE)
def test_rows_that_differ(alike, how):
    encode = encoder()
    assert alike(lambda: UNLIKE[how](encode).sum().item()) == {}


MEETS = {
    "something of each row": lambda x: x + torch.randn(8, 12, 16),
    "noise": lambda x: torch.nn.functional.dropout(x, 0.5),
    "other rows": lambda x: torch.cat([x, torch.randn(8, 12, 16)], 2),
    "rows in a matrix": lambda x: x.transpose(0, 1),
    "what was written to": lambda x: x.index_fill_(0, torch.tensor([3]), 0.0),
}


@pytest.mark.parametrize("how", MEETS)
def test_it_ends_where_rows_meet_something_else(alike, how):
    encode, after = encoder(), torch.nn.Linear(16, 16)

    def step():
        x = MEETS[how](encode(torch.randint(64, (1, 12)).expand(8, -1)))
        torch.tanh(after(x[..., :16].reshape(-1, 16))).sum().item()

    found = alike(step)
    assert "tanh" not in found[1 / 8]


def test_a_mask_that_is_taken_for_all_rows_is_no_batch(alike):
    def step():
        mask = torch.randn(1, 12, 12).expand(8, 12, 12)
        (torch.randn(8, 12, 12) + mask).softmax(-1).sum().item()

    assert alike(step) == {}
