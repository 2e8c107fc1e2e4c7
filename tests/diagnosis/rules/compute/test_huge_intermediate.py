from dataclasses import replace

import pytest

from builders import TraceBuilder
from pinchpoint.diagnosis.evidence.functions import far_functions
from program import Program

KERNEL = "void at::native::vectorized_elementwise_kernel<4, Functor<float> >(int)"
ROWS, CODES, WIDTH = 16_384, 4_096, 64
PAIRS = [ROWS, CODES, WIDTH]
TAKES_US = {"aten::sub": 8_000, "aten::pow": 9_000, "aten::sum": 5_000, "aten::argmin": 80}
BETWEEN_BYTES = ROWS * CODES * WIDTH * 4


def distances(*, frames=True, shapes=True, rows=ROWS, takes=TAKES_US, product=False):
    """``(x[:, None] - e[None]).pow(2).sum(-1).argmin(1)`` in a step of 10 ms of products."""
    p = Program()
    pairs = [rows, CODES, WIDTH]
    given = {
        "aten::sub": ([[rows, 1, WIDTH], [1, CODES, WIDTH], []], ["", "", "1"]),
        "aten::pow": ([pairs, []], ["", "2"]),
        "aten::sum": ([pairs, [], [], []], ["", "[-1]", "False", ""]),
        "aten::argmin": ([[rows, CODES], [], []], ["", "1", "False"]),
    }
    for _ in p.steps(5):
        with p.row("aten::mm"):
            p.kernel("gemm", 10_000)
        with p.frame("model.py(15): nearest" if frames else "torch/nn/functional.py(2): nearest"):
            for name, (sizes, values) in given.items():
                if product and name == "aten::sum":
                    name = "aten::mm"
                more = {"shapes": sizes, "values": values, "dtypes": ["float"] * len(sizes)}
                with p.row(name, **(more if shapes else {})):
                    p.kernel(KERNEL, takes.get(name, 5_000))
        p.sync()
    return p.trace()


def test_a_tensor_of_all_pairs(outcome):
    (finding,) = outcome("huge-intermediate", distances()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["largest tensor in between"] == BETWEEN_BYTES
    read, written = (ROWS + CODES) * WIDTH * 4, ROWS * 4
    assert evidence["read from and written for outside, at most"] == read + written
    assert finding.cost_ns_per_step == sum(TAKES_US.values()) * 1_000
    assert finding.location.function == "nearest"


def test_the_summary_and_its_evidence_speak_of_the_same_rows(outcome):
    """The backward pass reads a gradient as large as the tensor, which the summary leaves out."""
    (finding,) = outcome("huge-intermediate", distances()).findings
    (far,) = far_functions(distances(), lambda row: True)
    backward = replace(far.rows[0], outside_bytes=BETWEEN_BYTES, inside_bytes=0)
    both = replace(far, rows=(*far.rows, backward))
    assert both.evidence_with(far.rows) == finding.evidence
    assert both.evidence != finding.evidence


def test_one_pass_takes_the_arithmetic_of_the_tensor(outcome):
    """Three operations an element at half the 67 TFLOP/s of the vector units."""
    (finding,) = outcome("huge-intermediate", distances()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    flops = 3 * ROWS * CODES * WIDTH + ROWS * CODES
    assert evidence["one pass each would take"] == pytest.approx(flops / 33.5e12 * 1e9, rel=0.01)


def test_the_rest_of_the_step_stays(predicted):
    after = predicted(distances(), "huge-intermediate")
    assert after == pytest.approx(10e6 + 0.4e6, rel=0.03)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(distances(rows=16), id="it fits into the cache"),
        pytest.param(distances(takes=dict.fromkeys(TAKES_US, 100)), id="near what it needs"),
        pytest.param(distances(product=True), id="a product in between reads it"),
    ],
)
def test_is_quiet(outcome, trace):
    assert outcome("huge-intermediate", trace).answer == "clear"


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(distances(shapes=False), id="shapes"),
        pytest.param(TraceBuilder().trace(), id="anything"),
    ],
)
def test_cannot_judge_without(outcome, trace):
    assert outcome("huge-intermediate", trace).answer == "not checked"


def test_what_a_library_does_is_the_functions_that_calls_it(outcome):
    (finding,) = outcome("huge-intermediate", distances(frames=False)).findings
    assert finding.location.function == "step"
