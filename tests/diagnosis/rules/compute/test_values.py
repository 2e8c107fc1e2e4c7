"""Causes that are in the values of tensors: padding, and masks that a flag would say."""

from dataclasses import replace

import numpy as np
import pytest

from device_steps import Work, device_bound
from pinchpoint.trace import RunFacts
from pinchpoint.trace.run_values import AttentionMask, Padding, RunValues

BF16 = "c10::BFloat16"
PLACE = ("train.py", 40, "step")
ROWS, WIDTH, HEADS, HEAD, DIM = 64, 512, 16, 64, 1024


def looked_at(trace, *, padding=(), attention=(), seen=True):
    values = RunValues(30, 1, seen, tuple(padding), tuple(attention), 0)
    return replace(trace, run=RunFacts(values=values))


def padded(lengths, evidence="mask", rows=ROWS):
    mean = sum(lengths) / len(lengths)
    return Padding(
        PLACE, "module", evidence, "mask", rows, WIDTH, rows, mean / WIDTH, mean, lengths, "right"
    )


def encoder(mask=(ROWS, 1, 1, WIDTH), length=WIDTH, batch=ROWS):
    query = [batch, HEADS, length, HEAD]
    forward = "aten::_cudnn_attention_forward"
    return device_bound(
        [
            Work(
                "nvjet",
                4_000,
                "aten::addmm",
                [[DIM], [batch * length, DIM], [DIM, DIM]],
                [BF16] * 3,
            ),
            Work("sdpa", 4_000, forward, [query, query, query, list(mask)], [BF16] * 4),
            Work("gelu", 1_000, "aten::gelu", [[batch, length, DIM]], [BF16]),
            Work("adam", 900, "aten::mul", [[DIM, DIM]], [BF16]),
        ]
    )


SHORT = tuple(range(64, 64 + 17 * 8, 8))  # 64 to 192 of 512


def test_work_shrinks_with_the_positions_and_attention_with_their_pairs(outcome):
    (found,) = outcome("padding-waste", looked_at(encoder(), padding=[padded(SHORT)])).findings
    assert "25 % of 64 × 512 positions hold tokens (mean length 128, longest 192)" in found.summary
    assert (found.location.file, found.location.line) == ("train.py", 40)
    assert found.cost_ns_per_step == 9_000_000
    linear, pairs = found.changes
    assert linear.factor == pytest.approx(192 / 512)
    assert pairs.factor == pytest.approx((192 / 512) ** 2)
    assert found.at_best[0].factor == pytest.approx(0.25)
    assert found.confidence == "high"


def test_batches_padded_to_their_longest_gain_from_sorting_alone(outcome):
    lengths = tuple(range(32, 513, 30))
    trace = looked_at(encoder(), padding=[padded(lengths, "ids")])
    (found,) = outcome("padding-waste", trace).findings
    assert found.fix.startswith("Put rows of like length")
    assert found.changes[0].flops_left > found.at_best[0].flops_left
    assert found.confidence == "medium"


def test_rows_that_are_full_or_empty_end_nowhere_in_padding(outcome):
    """Time first: a gap of one symbol is no padding, and only a mask would say that it is."""
    lengths = (0,) * 12 + (WIDTH,) * 5
    trace = looked_at(encoder(), padding=[padded(lengths, "ids")])
    assert outcome("padding-waste", trace).answer != "found"
    masked = looked_at(encoder(), padding=[padded(lengths, "mask")])
    assert outcome("padding-waste", masked).answer == "found"


def test_a_few_padded_positions_are_seen(outcome):
    """26 of 512."""
    said = outcome("padding-waste", looked_at(encoder(), padding=[padded((486,) * 17)]))
    assert (said.answer, said.why) == ("smaller", "smaller than 10 % of the positions: 5.0 %")


@pytest.mark.parametrize(
    "padding",
    [
        pytest.param([padded((WIDTH,) * 17)], id="full rows"),
        pytest.param([], id="no padding seen"),
        pytest.param([padded(SHORT, rows=7)], id="nothing recorded computes on that batch"),
    ],
)
def test_no_padding_is_clear_once_values_were_looked_at(outcome, padding):
    assert outcome("padding-waste", looked_at(encoder(), padding=padding)).answer == "clear"


def decoding(queries=1, filled=64):
    query, key = [ROWS, HEADS, queries, HEAD], [ROWS, HEADS, WIDTH, HEAD]
    name = "aten::_efficient_attention_forward"
    trace = device_bound(
        [
            Work("fmha", 6_000, name, [query, key, key, [1, 1, 1, WIDTH]], [BF16] * 4),
            Work("gemv", 4_000, "aten::addmm", [[DIM], [ROWS, DIM], [DIM, DIM]], [BF16] * 3),
        ]
    )
    return looked_at(trace, padding=[padded((filled,) * 17, rows=1)])


def test_a_cache_of_a_fixed_length_of_which_little_is_filled(outcome):
    (found,) = outcome("padding-waste", decoding()).findings
    assert "12 % of the 512 positions of a cache are filled" in found.summary
    assert found.fix.startswith("Give attention the filled part of the cache alone")
    (change,) = found.changes
    assert change.flops_left == pytest.approx(64 / 512)  # queries stay as they are: no square


def test_a_cache_that_is_filled_is_clear(outcome):
    assert outcome("padding-waste", decoding(filled=480)).answer != "found"


def test_as_many_queries_as_keys_are_a_padded_batch(outcome):
    (found,) = outcome("padding-waste", decoding(queries=WIDTH)).findings
    assert found.fix.startswith("Pad each batch")


LONG = 8192


def masked(kind, *, size=LONG, read=512):
    return AttentionMask(
        PLACE, 6, (2, HEADS, size, HEAD), (size, size), "bfloat16", kind, 0.5, read, size, None
    )


def long_context():
    return encoder((LONG, LONG), LONG, 2)


def test_a_causal_mask_spares_half_and_may_go_to_a_faster_kernel(outcome):
    trace = looked_at(long_context(), attention=[masked("causal")])
    (found,) = outcome("dense-attention-mask", trace).findings
    assert "is_causal=True" in found.fix
    assert (found.location.file, found.location.line) == ("train.py", 40)
    tiles = LONG // 128
    assert found.changes[0].factor == pytest.approx((tiles + 1) / (2 * tiles))
    flops = 4 * 2 * HEADS * LONG * LONG * HEAD * (tiles + 1) / (2 * tiles)
    best = flops / (989.4e12 * 0.35) * 1e6 / 4_000
    assert found.at_best[0].factor == pytest.approx(min(best, (tiles + 1) / (2 * tiles)))
    assert found.confidence == "medium"  # a sample of its rows was read


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param([masked("values")], id="a bias such as ALiBi"),
        pytest.param([masked("other")], id="a prefix that is seen whole"),
        pytest.param([masked("causal"), masked("banded")], id="windows in other layers"),
        pytest.param([masked("causal", size=LONG // 2)], id="a mask of another call"),
    ],
)
def test_masks_that_no_flag_says_are_left_alone(outcome, seen):
    trace = looked_at(long_context(), attention=seen)
    assert outcome("dense-attention-mask", trace).answer == "clear"


def test_without_values_it_is_not_checked_where_a_mask_has_a_row_for_each_query(outcome):
    answer = outcome("dense-attention-mask", long_context())
    assert (answer.answer, answer.fits) == ("not checked", True)
    compiled = looked_at(long_context(), seen=False)
    assert outcome("dense-attention-mask", compiled).answer == "not checked"
    assert outcome("dense-attention-mask", encoder()).answer == "clear"  # padding of keys alone


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        ("padding-waste", {"padding": [padded(SHORT)]}),
        ("dense-attention-mask", {"attention": [masked("causal")]}),
    ],
)
def test_where_shapes_were_not_recorded_the_window_that_has_them_is_asked(outcome, rule, seen):
    trace = looked_at(encoder(), **seen)
    nowhere = dict(trace.host_ops.missing) | {"shapes": np.ones(len(trace.host_ops), np.bool_)}
    bare = replace(trace, host_ops=replace(trace.host_ops, missing=nowhere))
    assert outcome(rule, bare).answer == "not checked"
