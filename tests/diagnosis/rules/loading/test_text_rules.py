"""Rules about text on the thread of the steps: tokenising, detokenising, padding."""

import pytest

from builders import TraceBuilder
from device_steps import Work, device_bound

US = 1_000
MS = 1_000_000


def text_steps(frame, takes_ms, *, inner=None, backward=False):
    """Each step: a function that handles text, then a kernel of 1 ms."""
    b, at = TraceBuilder(), 0
    for i, takes in enumerate(takes_ms):
        begin, spent = at, round(takes * MS)
        period = spent + 2 * MS
        b.step(i, begin, period)
        b.python("serve.py(9): step", begin, period)
        b.python(frame, begin + US, spent)
        for n in range(inner[i] if inner else 0):
            b.python("<built-in method append of list object at 0x7f>", begin + (n + 2) * US, 500)
        b.launch(begin + spent + 20 * US, 5 * US, "work", begin + spent + 30 * US, MS)
        if backward:
            b.op("autograd::engine::evaluate_function: MulBackward0", begin + spent + 40 * US, US)
        at += period
    return b.trace()


@pytest.mark.parametrize(
    "frame",
    [
        "train.py(12): tokenize",
        "transformers/tokenization_utils_base.py(2800): __call__",
        "<built-in method encode_batch of tokenizers.Tokenizer object at 0x55>",
    ],
)
def test_tokenising_while_the_device_waits(outcome, ranked, frame):
    trace = text_steps(frame, [20] * 6)
    (finding,) = outcome("tokenize-in-loop", trace).findings
    assert finding.cost_ns_per_step == 20 * MS
    assert ranked(trace)[0] == "tokenize-in-loop"


def test_no_tokeniser_no_finding(outcome):
    trace = text_steps("train.py(12): prepare", [20] * 6)
    assert outcome("tokenize-in-loop", trace).answer == "clear"
    assert outcome("tokenize-in-loop", TraceBuilder().trace()).answer == "not checked"


def test_a_quick_tokeniser_is_no_finding(ranked):
    assert "tokenize-in-loop" not in ranked(text_steps("train.py(12): tokenize", [0.01] * 6))


DETOKENIZE = "serve.py(30): detokenize"


def test_time_that_grows_with_the_answer(outcome, ranked):
    trace = text_steps(DETOKENIZE, [2, 3, 4, 5, 6, 7])
    (finding,) = outcome("detokenize-quadratic", trace).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["in the last steps"] > 1.5 * evidence["in the first steps"]
    assert ranked(trace)[0] == "detokenize-quadratic"


def test_inner_calls_that_grow_by_one_a_step(outcome):
    trace = text_steps(DETOKENIZE, [2] * 6, inner=[100, 101, 102, 103, 104, 105])
    assert outcome("detokenize-quadratic", trace).answer == "found"


def test_constant_work_a_token_is_well(outcome):
    trace = text_steps(DETOKENIZE, [2] * 6, inner=[8] * 6)
    assert outcome("detokenize-quadratic", trace).answer == "clear"
    training = text_steps(DETOKENIZE, [2, 3, 4, 5, 6, 7], backward=True)
    assert outcome("detokenize-quadratic", training).answer == "clear"


def test_needs_a_few_steps(outcome):
    assert outcome("detokenize-quadratic", text_steps(DETOKENIZE, [2, 3])).answer == "not checked"


QUERY = [32, 12, 1024, 64]


def attention(query, extra=()):
    operator = "aten::_cudnn_attention_forward"
    shapes = [query, query, query, [], *extra]
    return device_bound([Work("cudnn_sdpa_fprop", 500, operator, shapes, ["c10::BFloat16"] * 3)])


def test_padding_is_not_in_a_recording(outcome):
    answer = outcome("padding-waste", attention(QUERY))
    assert answer.answer == "not checked"
    assert "mask" in answer.record


def test_one_sequence_or_packed_ones_have_no_padding(outcome):
    assert outcome("padding-waste", attention([1, 12, 1024, 64])).answer == "clear"
    assert outcome("padding-waste", attention(QUERY, [[33]])).answer == "clear"
    assert outcome("padding-waste", attention([32, 12, 1, 64])).answer == "clear"


def splitting(built_in, *, calls=40, launches=False):
    """Each step: a function of the program that calls a built-in again and again, then a kernel."""
    b, at = TraceBuilder(), 0
    for i in range(6):
        b.step(i, at, 12 * MS)
        b.python("train.py(9): step", at, 12 * MS)
        b.python("train.py(40): encode_rows", at + US, 10 * MS)
        for n in range(calls):
            b.python(built_in, at + (n + 2) * 100 * US, 500)
        kernel_at = at + 5 * MS if launches else at + 10 * MS + 20 * US
        b.launch(kernel_at, 5 * US, "work", kernel_at + 10 * US, MS)
        at += 12 * MS
    return b.trace()


SPLIT = "<built-in method split of str object at 0x7f>"


def test_a_tokeniser_of_the_program_shows_by_what_it_does(outcome):
    (finding,) = outcome("tokenize-in-loop", splitting(SPLIT)).findings
    assert (finding.location.function, finding.confidence) == ("encode_rows", "medium")


@pytest.mark.parametrize(
    "trace",
    [
        splitting(SPLIT, calls=3),
        splitting(SPLIT, launches=True),
        splitting("<built-in method append of list object at 0x7f>"),
    ],
    ids=["a name", "a function that launches", "lists"],
)
def test_other_functions_are_no_tokenisers(outcome, trace):
    assert outcome("tokenize-in-loop", trace).answer == "clear"
