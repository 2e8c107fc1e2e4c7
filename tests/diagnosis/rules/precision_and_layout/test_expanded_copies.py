import pytest

from program import Program

HEADS = [16, 8, 4, 1024, 128]
DENSE = [4 * 8 * 1024 * 128, 4 * 1024 * 128, 1024 * 128, 128, 1]
EXPANDED = [8 * 1024 * 128, 1024 * 128, 0, 128, 1]
BYTES = 16 * 8 * 4 * 1024 * 128 * 2


def decoding(source=EXPANDED, *, heads=HEADS, strides=True, copy_us=100, by="aten::reshape"):
    """Two layers: keys are written out for all heads and read by attention."""
    p = Program()
    for _ in p.steps(4):
        for _ in range(2):
            more = {"strides": [DENSE, source, []]} if strides else {}
            types = ["c10::BFloat16"] * 2 + [""]
            copy = p.row("aten::copy_", shapes=[heads, heads, []], dtypes=types, **more)
            with p.row(by), copy:
                p.kernel("void at::native::elementwise_kernel<128, 4>()", copy_us)
            with p.row("aten::bmm"):
                p.kernel("gemm", 300)
        p.sync()
    return p.trace()


def test_heads_written_out_four_times(outcome):
    (finding,) = outcome("expanded-copies", decoding()).findings
    evidence = {e.what: e.value for e in finding.evidence}
    assert evidence["times that each value is written"] == 4
    assert evidence["written"] == 2 * BYTES
    assert finding.cost_ns_per_step == 200_000


def test_without_them_the_products_are_left(predicted):
    assert predicted(decoding(), "expanded-copies") == pytest.approx(600_000, rel=0.05)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(decoding(source=DENSE), id="a copy of as much"),
        pytest.param(decoding(source=DENSE[::-1]), id="another layout"),
        pytest.param(decoding(by="aten::bmm"), id="a product copies its own operands"),
        pytest.param(decoding(heads=[1, 2, 4, 16, 16]), id="small"),
    ],
)
def test_other_copies_are_not_meant(outcome, trace):
    assert outcome("expanded-copies", trace).answer == "clear"


def test_cannot_judge_without_strides(outcome):
    assert outcome("expanded-copies", decoding(strides=False)).answer == "not checked"
