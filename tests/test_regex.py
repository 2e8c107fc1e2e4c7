"""Expressions that are compiled late say what the compiled ones say."""

import gc
import re
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pinchpoint
from pinchpoint.diagnosis.evidence.operators import table
from pinchpoint.regex import regex, words_of


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("gemm", (("gemm",),)),
        ("gemm|cutlass", (("gemm", "cutlass"),)),
        ("aten::(sort|topk)$", (("aten::",), ("sort", "topk"))),
        ("nccl(dev)?kernel|rccl", (("kernel", "rccl"),)),
        ("(un)?rolled_x*yz", (("rolled_",), ("yz",))),
        (r"\(foo\)x{2,3}yz", (("(foo)",), ("yz",))),
        ("ab+cd?ef", (("ab",), ("ef",))),
        ("(?<!ab)cd(?=ef)", (("cd",),)),
        ("(?P<name>ab)cd", (("cd",),)),
        ("[ab|]]cd", (("cd",),)),
        ("ab|", ()),
        ("ab|.*", ()),
        ("(?i)ab", ()),
        ("(?i:ab)cd", ()),
        (r"(a)\1bc", ()),
        (r"\x41bc", ()),
        (r"\d{1,9}", ()),
    ],
)
def test_the_words_that_a_match_has(pattern, words):
    assert words_of(pattern) == words


def test_nothing_is_compiled_for_a_text_that_has_none_of_the_words(monkeypatch):
    late = regex("gemm|cutlass")
    monkeypatch.setattr("pinchpoint.regex.re.compile", lambda *_: pytest.fail("was compiled"))
    assert late.search("softmax") is None
    assert late.match("softmax") is None


def test_what_is_compiled_takes_over():
    late = regex("a(b)")
    assert late.search("xx") is None
    assert late.search("xab")[1] == "b"
    assert late.match("xab") is None
    assert late.match("xab", 1)[0] == "ab"
    assert late.fullmatch("ab")[0] == "ab"
    assert [late.search("xx") for _ in range(200)] == [None] * 200
    assert late.sub("c", "ab") == "c"
    assert regex(b"ab").search(b"ab")[0] == b"ab"
    assert regex("AB", re.IGNORECASE).search("ab")[0] == "ab"


def expressions():
    """All of the package, and those of operators.json."""
    home = Path(pinchpoint.__file__).parent
    for path in sorted(home.rglob("*.py")):
        name = ".".join(("pinchpoint", *path.relative_to(home).with_suffix("").parts))
        if path.stem != "__main__" and "regex(" in path.read_text("utf-8"):
            import_module(name.removesuffix(".__init__"))
    kind = type(regex(""))
    late = [(one.pattern, one._flags) for one in gc.get_objects() if type(one) is kind]
    known = [p for entry in table() for p in (*entry.operators, *entry.kernels, *entry.inside)]
    return sorted({p for p, flags in late if not flags and isinstance(p, str)} | set(known))


PATTERNS = expressions()
NAMES = (
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_tn_align8>",
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(float)>",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "triton_poi_fused__to_copy_add_mul_3",
    "torch/utils/data/dataloader.py(631): __next__",
    "<built-in method item of Tensor object at 0x7f0000000000>",
    "aten::_scaled_dot_product_flash_attention_backward",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "Optimizer.step#AdamW.step",
    "Memcpy HtoD (Pageable -> Device)",
)


def test_there_are_hundreds_and_most_have_words():
    assert len(PATTERNS) > 500
    assert sum(bool(words_of(p)) for p in PATTERNS) > len(PATTERNS) / 2


@pytest.mark.parametrize("name", NAMES)
def test_all_expressions_say_the_same_of_names(name):
    for pattern in PATTERNS:
        whole = re.compile(pattern)
        for text in (name, name.lower()):
            found = whole.search(text)
            assert regex(pattern).search(text) == found or (
                found is not None and regex(pattern).search(text).span() == found.span()
            ), pattern
            if found:  # what matches has the words
                assert all(any(w in text for w in any_of) for any_of in words_of(pattern)), pattern


@given(st.sampled_from(PATTERNS), st.data())
def test_a_text_made_from_an_expression_has_its_words(pattern, data):
    text = data.draw(st.from_regex(pattern))
    assert all(any(word in text for word in any_of) for any_of in words_of(pattern))
