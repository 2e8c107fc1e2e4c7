"""What one look at the tensors of a step tells: padding, and masks that a flag would say."""

import json
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from pinchpoint.capture.process.looks import Looks
from pinchpoint.capture.process.ranks import Identity
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.step_clock import StepClock
from pinchpoint.capture.process.values import ValuesLook
from pinchpoint.capture.settings import Settings
from pinchpoint.diagnosis.engine import ask
from pinchpoint.diagnosis.registry import rules
from pinchpoint.importers import load
from pinchpoint.importers.run_folder.values import run_values
from pinchpoint.run_folder.documents import ProcessDocument

pytestmark = pytest.mark.torch
WIDTH = 32
LENGTHS = (3, 32, 8, 8)


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="looks at tensors of torch")


@pytest.fixture
def seen(tmp_path):
    """What a look at one step says of a program: ``seen(step)``."""

    def look(step):
        session = SimpleNamespace(
            settings=Settings(str(tmp_path)),
            identity=SimpleNamespace(stem="rank0.host.7", rank=0, world_size=1),
            clock=StepClock(),
            stage=Stage.TIMING,
            quiet_busy=False,
            looks=Looks(),
        )
        eyes = ValuesLook(session)
        before = torch.nn.functional.scaled_dot_product_attention
        eyes.start()
        try:
            session.looks.begins()
            step()
            session.looks.ended()
        finally:
            eyes.stop()
        assert torch.nn.functional.scaled_dot_product_attention is before
        for path in tmp_path.glob("values/*.json"):  # the name has the number of this process
            document = json.loads(path.read_text())
            return run_values(tmp_path, ProcessDocument(pid=7)), document
        return None, None

    return look


def called(**given):
    """A call of a module that does nothing with its arguments."""

    class Model(torch.nn.Module):
        def forward(self, *args, **kwargs):
            return None

    return lambda: Model()(**given)


def rows(pad, *, left=False, dtype=None, lengths=LENGTHS):
    found = torch.full((len(lengths), WIDTH), pad, dtype=dtype)
    for row, n in enumerate(lengths):
        part = slice(WIDTH - n, None) if left else slice(0, n)
        found[row, part] = torch.arange(1, n + 1, dtype=found.dtype) if dtype is None else 1
    return found


@dataclass
class Encoding:
    """A batch as a class of its own."""

    tokens: object


def tails():
    frames = torch.randn(4, WIDTH, 8)
    for row, n in enumerate(LENGTHS):
        frames[row, n:] = 0
    return frames


PADDED = {
    "a mask of integers": (
        lambda: {"batch": {"attention_mask": rows(0, dtype=torch.long)}},
        "mask",
    ),
    "a mask of booleans": (lambda: {"keep": rows(False, dtype=torch.bool)}, "mask"),
    "what is not there": (lambda: {"key_padding_mask": ~rows(False, dtype=torch.bool)}, "mask"),
    "to the left": (lambda: {"mask": rows(0, left=True, dtype=torch.long)}, "mask"),
    "added to scores": (
        lambda: {"mask": torch.log(rows(0, dtype=torch.float))[:, None, None]},
        "mask",
    ),
    "a pad id at the ends": (lambda: {"x": (rows(0), torch.zeros(4))}, "ids"),
    "a pad id at the starts": (lambda: {"x": Encoding(rows(7, left=True))}, "ids"),
    "an inverted mask beside ids": (
        lambda: {"x": rows(0), "m": ~rows(False, dtype=torch.bool)},
        "ids",
    ),
    "frames of silence": (lambda: {"audio": tails()}, "frames"),
}


@pytest.mark.parametrize("case", PADDED)
def test_the_lengths_of_rows_are_found_without_keeping_values(seen, case):
    given, evidence = PADDED[case]
    values, _ = seen(called(**given()))
    (padding,) = values.padding
    assert padding.evidence == evidence
    assert (padding.rows, padding.width, padding.longest) == (4, WIDTH, 32)
    assert padding.mean_length == sum(LENGTHS) / 4
    assert padding.real_ratio == pytest.approx(sum(LENGTHS) / 4 / WIDTH, abs=1e-4)
    assert padding.place[0].endswith("test_values.py")
    assert padding.side == (
        "left" if case in ("to the left", "a pad id at the starts") else "right"
    )


FULL = {
    "random ids": lambda: {"x": torch.arange(4 * WIDTH).view(4, WIDTH)},
    "one class for all": lambda: {"x": torch.zeros(4, WIDTH, dtype=torch.long)},
    "tokens to guess": lambda: {"m": torch.arange(WIDTH).remainder(3).eq(0).repeat(4, 1)},
    "images": lambda: {"x": torch.zeros(4, 3, WIDTH, WIDTH)},
    "edges of a graph": lambda: {"edge_index": torch.arange(2 * 64).view(2, 64) // 3},
    "a nested tensor": lambda: {
        "x": torch.nested.nested_tensor([torch.ones(n, 8) for n in LENGTHS])
    },
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("case", FULL)
def test_what_is_no_padding_is_not_taken_for_it(seen, case):
    values, _ = seen(called(**FULL[case]()))
    assert values.batches == 1
    assert values.padding == ()


def test_a_program_that_ends_before_its_operations_were_followed_is_told(seen):
    values, _ = seen(called(labels=torch.zeros(4, WIDTH)))
    assert values.work is None
    assert values.work_not_seen.startswith("it ended before its operations were followed")


def test_labels_that_losses_ignore(seen):
    labels = torch.full((4, WIDTH), -100)
    labels[:, 0] = 1
    _, document = seen(called(labels=labels))
    (note,) = document["batches"][0]["tensors"]
    assert (note["evidence"], note["ignored_ratio"]) == ("labels", pytest.approx(31 / 32, abs=1e-3))


@pytest.mark.parametrize("how", ["function", "module", "of an image"])
def test_labels_of_a_loss_that_it_ignores(seen, how):
    scores, labels = torch.randn(8, 5), torch.tensor([-100, -100, 1, -100, 2, -100, -100, -100])

    def step():
        if how == "function":
            torch.nn.functional.cross_entropy(scores, labels, ignore_index=-100)
        elif how == "module":
            torch.nn.CrossEntropyLoss()(scores, target=labels)
        else:
            torch.nn.functional.cross_entropy(scores.T[None], labels[None])

    values, _ = seen(step)
    (loss,) = values.losses
    assert (loss.rows, loss.classes, loss.calls, loss.ignored_ratio) == (8, 5, 1, 0.75)
    assert loss.place[2] == "step"


def test_probabilities_are_no_labels(seen):
    scores = torch.randn(8, 5)
    values, _ = seen(lambda: torch.nn.functional.cross_entropy(scores, scores.softmax(1)))
    assert values.losses == ()


def ltr(size=WIDTH):
    return torch.ones(size, size, dtype=torch.bool).tril()


def at(size=WIDTH):
    return torch.arange(size)


MASKS = {
    "causal": lambda: ltr(),
    "causal, added": lambda: torch.full((WIDTH, WIDTH), float("-inf")).triu(1),
    "nothing hidden": lambda: torch.zeros(2, 1, WIDTH, WIDTH),
    "padding": lambda: rows(False, dtype=torch.bool, lengths=(3, 32))[:, None, None],
    "causal before padding": lambda: (
        ltr() & rows(False, dtype=torch.bool, lengths=(3, 32))[:, None, None]
    ),
    "banded": lambda: ltr() & (at() > at()[:, None] - 4),
    "values": lambda: -(at()[:, None] - at()).abs().float(),
    "other": lambda: ltr() | (at() < 5),
}


@pytest.mark.parametrize("case", MASKS)
def test_masks_of_attention_by_their_values(seen, case):
    mask = MASKS[case]()
    query = torch.ones(2, 1, WIDTH, 8)

    def step():
        for _ in range(3):
            torch.nn.functional.scaled_dot_product_attention(query, query, query, mask)

    with torch.inference_mode(case == "causal, added"):
        values, _ = seen(step)
    (found,) = values.attention
    assert (found.kind, found.calls) == (case.removesuffix(", added"), 3)
    assert found.mask == tuple(mask.shape)
    assert found.place[2] == "step"
    through = mask.float() if mask.dtype is torch.bool else (mask == 0).float()
    assert found.real_ratio == pytest.approx(float(through.mean()), abs=1e-4)


def test_large_masks_are_sampled_and_that_is_said(seen, monkeypatch):
    monkeypatch.setattr("pinchpoint.capture.process.value_facts.MOST_ELEMENTS", 300)
    query = torch.ones(2, 1, WIDTH, 8)
    values, _ = seen(
        lambda: torch.nn.functional.scaled_dot_product_attention(query, query, query, ltr())
    )
    (found,) = values.attention
    assert found.kind == "causal"
    assert found.rows_read < found.rows_there == WIDTH


def test_what_cannot_be_read_leaves_nothing_and_the_program_goes_on(seen, monkeypatch):
    def broken(*_):
        raise RuntimeError("a device that is lost")

    monkeypatch.setattr("pinchpoint.capture.process.values.attention_mask", broken)
    query = torch.ones(2, 1, WIDTH, 8)
    values, _ = seen(
        lambda: torch.nn.functional.scaled_dot_product_attention(query, query, query, ltr())
    )
    assert values.attention == ()


PROGRAM = """
import torch
from torch.nn import functional as F
torch.set_num_threads(1)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(99, 16)
    def forward(self, ids):
        x = self.embedding(ids)[:, None]
        causal = torch.ones(1024, 1024, dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(x, x, x, attn_mask=causal)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ids = torch.zeros(2, 1024, dtype=torch.long)
ids[:, :100] = torch.arange(1, 91).repeat(2)[:100]
for _ in range(8):
    model(ids).sum().backward()  # the call
    optimizer.step()
"""


def test_a_run_names_padding_and_mask_with_their_places(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pinchpoint", "run", "-o", "out", sys.executable, "train.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    trace = load(tmp_path / "out")
    trace = trace.run.named or trace
    (mask,) = ask(rules()["dense-attention-mask"], trace).findings
    (waste,) = ask(rules()["padding-waste"], trace).findings
    lines = PROGRAM.splitlines()
    assert "scaled_dot_product_attention" in lines[mask.location.line - 1]
    assert "# the call" in lines[waste.location.line - 1]
    assert waste.summary.startswith("10 % of 2 × 1024 positions hold tokens")


@pytest.fixture
def again(tmp_path):
    """Kinds of modules that were called again, of steps: ``again(step)``, which gets a number."""

    def look(step):
        from pinchpoint.capture.process.same_inputs import STEPS, SameInputs

        same = SameInputs(lambda: ("serve.py", 7, "step"))
        same.begin()
        for number in range(STEPS):
            step(number)
            notes = same.step_ends()
        assert not same.watches
        return {note["model"]: (note["calls"], note["distinct"]) for note in notes}

    return look


def encoder_and_head():
    class Encoder(torch.nn.Linear):
        pass

    class Head(torch.nn.Linear):
        pass

    return Encoder(8, 8).eval(), Head(8, 8).eval()


def test_a_module_that_gets_the_same_values_is_called_again(again):
    encoder, head = encoder_and_head()
    prompt = torch.ones(4, 8)

    def step(number):
        with torch.no_grad():
            head(encoder(prompt.clone()) + number)

    assert again(step) == {"Encoder": (6, 1)}


def test_looks_that_take_too_long_end(again, monkeypatch):
    """Where another thread holds the interpreter, each of our operations waits for it."""
    monkeypatch.setattr("pinchpoint.capture.process.same_inputs.MOST_NS", 1)
    encoder, head = encoder_and_head()
    entered = []
    encoder.register_forward_pre_hook(lambda module, args: entered.append(args))

    def step(number):
        with torch.no_grad():
            head(encoder(torch.ones(4, 8)) + number)

    assert again(step) == {}
    assert len(entered) == 6


def test_a_picture_is_encoded_anew_in_each_of_the_steps_that_make_it(again):
    """Wherever the watch begins: a round of six steps has one input."""
    encoder, head = encoder_and_head()

    def step(number):
        with torch.no_grad():
            head(encoder(torch.full((4, 8), 1.0 * (number // 6))) + number)

    ((model, (calls, distinct)),) = again(step).items()
    assert (model, calls) == ("Encoder", 6)
    assert distinct <= 2


@pytest.mark.parametrize(
    "what", ["values", "weights", "dropout", "training", "an object", "all", "size"]
)
def test_what_may_answer_otherwise_is_not_called_again(again, what, monkeypatch):
    encoder, head = encoder_and_head()
    if what == "size":  # what is new could be in what was not looked at, or nowhere
        monkeypatch.setattr("pinchpoint.capture.process.same_inputs.MOST_ELEMENTS", 32)
    prompt, trains = torch.ones(4, 8), what == "training"
    if what == "dropout":
        encoder.drop = torch.nn.Dropout()

    class Encoder(torch.nn.Module):
        def forward(self, x, state):
            return x

    odd = Encoder().eval()

    def step(number):
        with torch.set_grad_enabled(trains):
            if what == "an object":
                odd(prompt, object())
            else:
                encoder(prompt + number if what == "values" else prompt)
            if what in ("weights", "training"):
                encoder.weight.data.mul_(0.5)
            head(torch.ones(8, 8) - number if what == "size" else prompt - number * (what != "all"))

    assert again(step) == {}


def test_what_is_inside_uses_up_nothing_that_the_call_around_it_needs(again, monkeypatch):
    """Layers of an encoder end before it does, and see more numbers than it is given."""
    monkeypatch.setattr("pinchpoint.capture.process.same_inputs.IN_A_STEP", 1024)

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wide = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(8)))

        def forward(self, x):
            return self.wide(x)

    encoder, (_, head) = Encoder().eval(), encoder_and_head()
    prompt = torch.ones(16, 8)

    def step(number):
        with torch.no_grad():
            for half in (0.0, 0.5):
                head(encoder(prompt.clone()) + number + half)

    assert again(step)["Encoder"] == (12, 1)


def test_what_trains_is_called_again_within_a_step(again):
    encoder, head = encoder_and_head()

    def step(number):
        for _ in range(2):
            head(encoder(torch.full((4, 8), 1.0 * number)) + torch.rand(4, 8)).sum().backward()
        encoder.weight.data.sub_(0.1 * encoder.weight.grad)

    assert again(step) == {"Encoder": (12, 6)}


def test_a_module_of_weights_alone_is_told_by_its_answer_however_deep(again):
    class Weight(torch.nn.Module):
        def __init__(self, random):
            super().__init__()
            self.raw, self.random = torch.nn.Parameter(torch.eye(8)), random

        def forward(self):
            return self.raw.matrix_exp() + (torch.rand(8, 8) if self.random else 0)

    class Noise(Weight):
        pass

    class Layer(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    class Uses(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.noise = Weight(random=False), Noise(random=True)

        def forward(self, x):
            return x @ self.weight() @ self.noise()

    model = Layer(Layer(Layer(Uses())))

    def step(number):
        for turn in range(4):
            model(torch.full((4, 8), 10.0 * number + turn))

    assert again(step) == {"Weight": (24, 1)}


def test_what_a_backward_pass_computes_again_is_no_call_again(again):
    from torch.utils.checkpoint import checkpoint

    encoder, head = encoder_and_head()

    def step(number):
        x = torch.full((4, 8), float(number), requires_grad=True)
        head(checkpoint(encoder, x, use_reentrant=False)).sum().backward()

    assert again(step) == {}


def test_where_there_may_be_few_steps_all_is_looked_at_before_they_are_recorded(tmp_path):
    now = [0]
    session = SimpleNamespace(
        settings=Settings(str(tmp_path)),
        identity=SimpleNamespace(stem="rank0.host.7", rank=0, world_size=1),
        clock=StepClock(lambda: now[0]),
        stage=Stage.RECOVERING,
        quiet_busy=False,
        watching=False,
        looks=Looks(),
    )
    eyes, watching = ValuesLook(session), []
    eyes.start()
    for number in range(14):
        now[0] += 400_000_000
        session.clock.edge()
        session.looks.ended()
        session.stage = Stage.RECOVERING if number < 4 else Stage.WAITING
        session.looks.begins()
        watching.append(session.watching)
        x = torch.randn(4, 8)
        x.sin()  # nobody reads it
        x.sum().item()
    eyes.stop()
    assert watching == [False] * 4 + [True] * 7 + [False] * 3  # a look, and six steps
    assert session.clock.watched == set(range(5, 11))
    (document,) = tmp_path.glob("values/*.json")
    (work,) = json.loads(document.read_text())["work"]
    assert work["kind"] == "unused"


def job(folder, rank, step_ns, **settings):
    """A rank of two, whose steps take so long; it has written of itself."""
    now = [0]
    session = SimpleNamespace(
        settings=Settings(str(folder), **settings),
        identity=Identity(rank, 2, rank, "host", 7 + rank, launched=True),
        clock=StepClock(lambda: now[0]),
        stage=Stage.RECOVERING,
        quiet_busy=False,
        watching=False,
        looks=Looks(),
    )
    (folder / "processes").mkdir(exist_ok=True)
    (folder / "processes" / f"{session.identity.stem}.json").write_text("{}")

    def edge(number):
        now[0] += step_ns
        session.clock.edge()
        session.looks.ended()
        session.stage = Stage.RECOVERING if number < 4 else Stage.WAITING
        session.looks.begins()
        return session.watching

    eyes = ValuesLook(session)
    eyes.start()
    return session, eyes, edge


def watched_together(first, second, edges=18):
    """At which edges each of two ranks watches or waits to, and where its look began."""
    found = [], []
    for number in range(edges):
        for watching, (_, _, edge) in zip(found, (first, second), strict=True):
            if edge(number):
                watching.append(number)
            torch.randn(4, 8).sum().item()
    for _, eyes, _ in (second, first):  # each puts back what it found
        eyes.stop()
    return found


def test_ranks_of_a_job_look_at_the_same_steps(tmp_path):
    """As the first one decides, though to the other one the steps do not seem long."""
    first, second = job(tmp_path, 0, 400_000_000), job(tmp_path, 1, 100_000_000)
    decided, heard = watched_together(first, second)
    assert decided == heard == list(range(4, 14))  # three to hear of it, the look, and six steps
    assert first[0].clock.watched == second[0].clock.watched == set(range(8, 14))
    assert len(list(tmp_path.glob("values/*.json"))) == 2


@pytest.mark.parametrize("why", ["short steps", "a rank on another disk", "steps that were asked"])
def test_ranks_look_later_where_they_could_not_do_so_together(tmp_path, why):
    step_ns = 100_000_000 if why == "short steps" else 400_000_000
    other = tmp_path / "other"
    other.mkdir()
    asked = {"after_steps": 40} if why == "steps that were asked" else {}
    first = job(tmp_path, 0, step_ns, **asked)
    second = job(other if "disk" in why else tmp_path, 1, 400_000_000, **asked)
    assert watched_together(first, second) == ([], [])
