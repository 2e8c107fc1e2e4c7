import json
import re
import runpy
from pathlib import Path

import pytest

from pinchpoint.diagnosis.evidence.operators import elsewhere, known, known_on_cpu, shipped, table
from pinchpoint.diagnosis.registry import rules
from pinchpoint.errors import UnreadableFile

SCRIPT = Path(__file__).parents[3] / "docs/refresh_operators.py"


def test_entries_are_whole_and_each_is_the_first_for_its_example():
    for entry in shipped():
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
        if entry.only_on_cpu:
            assert found != entry
            found = known_on_cpu(entry.example[0])
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


MINE = {
    "operators": ["^mylib::ragged_sum"],
    "why": "a block has a row",
    "instead": "Sort rows by length",
    "source": "our wiki",
}


def own(tmp_path, monkeypatch, text):
    path = tmp_path / "operators.json"
    path.write_text(text, "utf-8")
    monkeypatch.setenv("PINCHPOINT_OPERATORS", str(path))
    return path


def test_entries_of_ones_own_come_first(tmp_path, monkeypatch):
    other = MINE | {"operators": ["aten::cumsum"], "why": "we know better"}
    own(tmp_path, monkeypatch, json.dumps({"operator": [MINE, other]}))
    assert known("mylib::ragged_sum", "v1").instead == "Sort rows by length"
    assert known("aten::cumsum", "tensor_kernel_scan_outer_dim").why == "we know better"
    assert len(table()) == len(shipped()) + 2


def test_the_data_folder_has_it_where_nothing_names_one(tmp_path, monkeypatch):
    monkeypatch.delenv("PINCHPOINT_OPERATORS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "empty"))
    assert known("mylib::ragged_sum", "v1") is None
    folder = tmp_path / "filled/pinchpoint"
    folder.mkdir(parents=True)
    (folder / "operators.json").write_text(json.dumps({"operator": [MINE]}), "utf-8")
    monkeypatch.setenv("XDG_DATA_HOME", str(folder.parent))
    assert known("mylib::ragged_sum", "v1") is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("{", "no table of operators", id="no JSON"),
        pytest.param(json.dumps({"operator": [MINE | {"wy": "x"}]}), "wy", id="a wrong word"),
        pytest.param(json.dumps({"operator": [MINE | {"operators": ["("]}]}), "(", id="a pattern"),
        pytest.param(
            json.dumps({"operator": [MINE | {"operators": []}]}), "names no", id="no name"
        ),
        pytest.param(
            json.dumps({"operator": [MINE | {"operators": ["a{99999999999999999999}"]}]}),
            "too large",
            id="a pattern that is too large",
        ),
        pytest.param(
            json.dumps({"operator": [MINE | {"operators": ["(" * 5000 + ")" * 5000]}]}),
            "recursion",
            id="a pattern that is too deep",
        ),
        pytest.param(
            json.dumps({"operator": [MINE | {"kernels": [r"(\w+|:)+!$"]}]}),
            "may not end",
            id="a pattern that does not end",
        ),
        pytest.param(json.dumps({"operator": [MINE] * 1001}), "more than", id="a wrong file"),
    ],
)
def test_a_file_that_is_none_says_what_is_wrong(tmp_path, monkeypatch, text, said):
    path = own(tmp_path, monkeypatch, text)
    with pytest.raises(UnreadableFile, match=re.escape(str(path))) as raised:
        table()
    assert said in raised.value.message


def test_a_file_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PINCHPOINT_OPERATORS", str(tmp_path / "none.json"))
    with pytest.raises(UnreadableFile, match="no such file"):
        table()


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|b)*x", "((a)*b){2,}", "(?:(?:x|y)z)+", r"(\(+)*"])
def test_a_repeat_in_a_repeat_is_refused(tmp_path, monkeypatch, pattern):
    own(tmp_path, monkeypatch, json.dumps({"operator": [MINE | {"kernels": [pattern]}]}))
    with pytest.raises(UnreadableFile, match="may not end"):
        table()


@pytest.mark.parametrize(
    "pattern", ["(ab)+", r"(a\+)+", "([+*|(])+", "(a|b)", "(a+)b*", "(a|b){2}"]
)
def test_a_repeat_beside_others_is_none(tmp_path, monkeypatch, pattern):
    own(tmp_path, monkeypatch, json.dumps({"operator": [MINE | {"kernels": [pattern]}]}))
    assert table()[0].kernels == (pattern,)
