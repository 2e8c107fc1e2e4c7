import re
import runpy
from pathlib import Path

from pinchpoint.diagnosis.evidence.operators import elsewhere, known, table
from pinchpoint.diagnosis.registry import rules

SCRIPT = Path(__file__).parents[3] / "docs/refresh_operators.py"


def test_entries_are_whole_and_each_is_the_first_for_its_example():
    for entry in table():
        assert entry.operators or entry.kernels
        for pattern in entry.operators + entry.kernels + entry.inside:
            re.compile(pattern)
        assert entry.why[0].islower() or entry.why[0].isdigit() or entry.why.startswith("cuDNN")
        assert entry.instead[0].isupper()
        assert not entry.why.endswith(".")
        assert not entry.instead.endswith(".")
        assert entry.source
        around = (entry.example_around,) if entry.example_around else ()
        found = known(*entry.example, around=around, across_layouts=entry.across_layouts)
        assert found == entry, entry.example


def test_what_no_name_tells_has_a_rule_or_a_reason():
    for one in elsewhere():
        assert (one.rule in rules()) != bool(one.why_not), one.what
        assert one.source


def test_the_page_is_as_the_table():
    script = runpy.run_path(str(SCRIPT))
    page = script["PAGE"].read_text("utf-8")
    assert page == script["text"](), "run: python docs/refresh_operators.py"


def test_some_that_are_near_each_other():
    for operator, kernel, word in (
        ("aten::_index_put_impl_", "index_put_kernel", "by index"),
        ("aten::miopen_convolution", "naive_conv_ab_nonpacked", "generic"),
        ("aten::sort", "", "radix"),
        ("", "input_transpose_fusion", "layouts"),
    ):
        assert word in known(operator, kernel).why


def test_nothing_is_known_of_most():
    assert known("aten::mm", "gemm") is None
    assert known("aten::mm", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT") is None
    assert known("aten::convolution_backward", "sm90_xmma_dgrad_implicit_gemm") is None
