"""Which calls of a model are parts of a round, by the frames above them."""

import sys

import pytest

from pinchpoint.capture.process.rounds import FEWEST_TO_LEARN, Rounds

MS = 1_000_000


class Model:
    """Each call takes so long, and asks whether it ends a step."""

    def __init__(self, ms):
        self.rounds, self.ms, self.now = Rounds(), ms, 0
        self.said = []

    def __call__(self):
        self.now += round(self.ms * MS)
        self.said.append(self.told())

    def told(self):
        """Where the product has the hook of a module."""
        return self._ends()

    def _ends(self):
        return self.rounds.ends_step(self.now)

    @property
    def last(self):
        """What was said of the calls of the last quarter."""
        return self.said[3 * len(self.said) // 4 :]


def encode(model, document):
    model()
    return document


def request(model, documents):
    encode(model, "query")
    return [encode(model, document) for document in range(documents)]


def test_a_request_that_calls_a_small_model_again_and_again_is_the_step():
    model = Model(0.2)
    for _ in range(100):
        request(model, 99)
    assert model.last.count("round") == 25
    assert model.last[0] == "round"  # the first call in it
    assert "module" not in model.last


def test_a_loop_that_goes_round_in_one_function_is_the_step():
    model = Model(0.2)
    for _ in range(400):
        encode(model, "query")
        for _ in range(50):
            encode(model, "document")
        encode(model, "answer")
    assert model.last.count("round") == 100
    assert "module" not in model.last


def answer(model, tokens, prompt_ms=90):
    model.ms = prompt_ms
    for _ in range(tokens):
        model()
        model.ms = 20


def twice(model):
    model.ms = 20
    model()
    model()


@pytest.mark.parametrize("ask", [lambda m: answer(m, 3), twice], ids=["a long one first", "twice"])
def test_a_request_of_a_few_calls_that_are_not_alike_is_the_step(ask):
    model = Model(20)
    for _ in range(40):
        ask(model)
    assert model.last.count("round") == 10
    assert "module" not in model.last


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(lambda m: [encode(m, 0) for _ in range(7000)], id="one in each"),
        pytest.param(lambda m: [answer(m, 3, 20) for _ in range(200)], id="alike, in a loop"),
        pytest.param(lambda m: [answer(m, 30) for _ in range(200)], id="a long text"),
    ],
)
def test_else_each_call_is_a_step(program):
    model = Model(20)
    program(model)
    assert set(model.said) == {"module"}


def test_no_more_is_kept_of_short_calls_than_of_a_few():
    """Of a loop that never comes round there are thousands in the seconds that it is looked at."""
    model = Model(0.2)
    for _ in range(2_000):
        model()
    assert len(model.rounds._came) == FEWEST_TO_LEARN


def test_rounds_that_do_not_come_again_give_way_to_calls():
    model = Model(0.2)
    for _ in range(100):
        request(model, 99)
    assert model.said[-1] is None
    for _ in range(400):
        model()
    assert model.said[-1] == "module"


def test_where_a_tracer_has_the_frames_they_stay_its_own():
    model, seen = Model(0.2), []

    def tracer(frame, event, argument):
        seen.append(frame.f_trace)
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        for _ in range(3):
            request(model, 3)
    finally:
        sys.settrace(before)
    assert set(model.said) == {"module"}


def test_a_frame_that_is_marked_traces_nothing():
    model = Model(0.2)
    lines = []

    def traced(frame, event, argument):
        lines.append(frame.f_code.co_name)

    def inner():
        model()
        model()
        sys.settrace(traced)
        model()
        sys.settrace(None)

    inner()
    assert "inner" not in lines
