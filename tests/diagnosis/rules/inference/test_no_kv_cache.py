import pytest

from pinchpoint.diagnosis.engine import diagnose
from pinchpoint.trace import HostKind
from program import Program

ATTENTION = "aten::scaled_dot_product_attention"


def generating(lengths, keys=None, *, trains=False, shapes=True):
    """One attention of 1 ms a step, over queries and keys of these lengths."""
    p = Program()
    for i in p.steps(len(lengths)):
        key = (keys or lengths)[i]
        tensors = [[1, 8, lengths[i], 64], [1, 8, key, 64], [1, 8, key, 64]]
        with p.row(ATTENTION, **({"shapes": tensors} if shapes else {})):
            p.kernel("flash_fwd_kernel", 1_000)
        if trains:
            p.host("Optimizer.step#SGD.step", 20, kind=HostKind.ANNOTATION)
    return p.trace()


PREFIX = [128 + i for i in range(8)]


def test_shows_how_the_prefix_grows(outcome):
    (finding,) = outcome("no-kv-cache", generating(PREFIX)).findings
    assert [e.value for e in finding.evidence[:2]] == [129, 135]  # the first step is not judged


def test_a_cached_step_is_a_fraction(predicted):
    assert predicted(generating(PREFIX), "no-kv-cache") < 0.2e6


@pytest.mark.parametrize(
    "trace",
    [
        generating([1] * 8, PREFIX),
        generating([128] * 8),
        generating([128, 512, 64, 300, 128, 70]),
        generating([i + 1 for i in range(8)]),
        generating(PREFIX, trains=True),
    ],
    ids=["cached", "prefill", "prefills of all lengths", "a short prompt", "training"],
)
def test_other_attention_is_fine(outcome, trace):
    assert outcome("no-kv-cache", trace).answer == "clear"


def test_without_shapes_it_cannot_be_told(outcome):
    assert outcome("no-kv-cache", generating(PREFIX, shapes=False)).answer == "not checked"


def layers(count, *, first_us):
    """Steps of ``count`` attention calls over a growing prefix, of which the first pays."""
    p = Program()
    for i in p.steps(8):
        query = [1, 8, PREFIX[i], 64]
        for layer in range(count):
            with p.row(ATTENTION, shapes=[query] * 3):
                p.busy(first_us if layer == 0 else 60)
                p.kernel("flash_fwd_kernel", 20)
    return p.trace()


def test_what_a_new_shape_costs_is_seen_in_the_layers_that_know_it():
    # Eight calls of 65 µs are left. A cache that grows has new shapes as well: shapes come first.
    diagnosed = diagnose(layers(8, first_us=40_000))
    (first,) = diagnosed.found
    assert first.id == "prepared-for-each-shape"
    assert 8 * 20_000 < first.predicted.step_ns < 0.9e6  # the device works 20 µs a call
    (cache,) = (one for one in diagnosed.outcomes if one.id == "no-kv-cache")
    assert (cache.answer, cache.covered_by) == ("covered", ("prepared-for-each-shape",))


def generating_in_steps(lengths, keys=None):
    """Each step generates several tokens: a pass of two layers over each of these lengths."""
    p = Program()
    for _ in p.steps(6):
        for i, length in enumerate(lengths):
            key = (keys or lengths)[i]
            tensors = [[1, 8, length, 64], [1, 8, key, 64], [1, 8, key, 64]]
            for _ in range(2):
                with p.row(ATTENTION, shapes=tensors):
                    p.kernel("flash_fwd_kernel", 500)
        p.sync()
    return p.trace()


def test_passes_of_one_step_over_a_growing_sequence(outcome, predicted):
    trace = generating_in_steps([768, 769, 770, 771])
    (finding,) = outcome("no-kv-cache", trace).findings
    assert [e.value for e in finding.evidence] == [768, 771]
    prefill, tokens = 1_000_000, 3 * 1_000_000 * 0.05
    assert predicted(trace, "no-kv-cache") == pytest.approx(prefill + tokens, rel=0.1)


@pytest.mark.parametrize(
    "trace",
    [
        generating_in_steps([768, 769]),
        generating_in_steps([768, 512, 900]),
        generating_in_steps([4, 5, 6, 7]),
        generating_in_steps([768, 1, 1, 1], [768, 769, 770, 771]),
    ],
    ids=["two prompts", "prompts of all lengths", "short", "cached"],
)
def test_other_passes_of_one_step_are_fine(outcome, trace):
    assert outcome("no-kv-cache", trace).answer == "clear"
