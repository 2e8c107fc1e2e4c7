import pytest

from pinchpoint.trace import HostKind
from program import Program

KERNELS, HOST_US = 50, 40


def decoding(*, query=1, kernel_us=4.0, trains=False):
    """A token a step: operators of HOST_US with one short kernel each, one of them attention."""
    p = Program()
    for _ in p.steps(6):
        for i in range(KERNELS):
            shapes = [[1, 8, query, 64], [1, 8, 500, 64], [1, 8, 500, 64]]
            attention = i == 3
            name = "aten::scaled_dot_product_attention" if attention else "aten::add"
            with p.row(name, **({"shapes": shapes} if attention else {})):
                p.busy(HOST_US - 5)
                p.kernel("gemv", kernel_us)
        if trains:
            p.host("Optimizer.step#SGD.step", 20, kind=HostKind.ANNOTATION)
    return p.trace()


def test_counts_the_launches_of_a_token(outcome):
    (finding,) = outcome("decode-host-overhead", decoding()).findings
    assert finding.summary.startswith(f"Each token is {KERNELS} launches from the host")
    assert finding.evidence[2].value == KERNELS * 4_000


def test_takes_the_place_of_many_launches(ranked, predicted):
    assert ranked(decoding()) == ["decode-host-overhead"]
    assert predicted(decoding(), "decode-host-overhead") < 2 * KERNELS * 4_000


@pytest.mark.parametrize(
    "trace",
    [decoding(query=500), decoding(trains=True), decoding(kernel_us=60)],
    ids=["prefill", "training", "bound by memory"],
)
def test_other_steps_are_not_meant(outcome, trace):
    assert outcome("decode-host-overhead", trace).answer == "clear"
