"""Calls that are slow for what they are given."""

from dataclasses import replace

import pytest

from builders import TraceBuilder
from looked_at_runs import looked_at, spent, thread
from pinchpoint.diagnosis.evidence.slow_ways.table import way_of
from pinchpoint.trace.run_samples import Called, Given

MS = 1_000_000
AT = "data.py(15): negatives"
OLD = "numpy.random.mtrand.RandomState.choice"


def call(name, *given, doing="rng.choice()", compared=0):
    return Called(AT, doing, name, 40, compared, given)


def number(name, value):
    return Given(name, "int", value=float(value))


def array(name, *shape, dtype="float64", **more):
    return Given(name, "array", shape, shape, dtype, **more)


def flag(name, value):
    return Given(name, "bool", value=float(value))


DRAW = call(OLD, number("0", 400_000), number("size", 256), flag("replace", False))
DRAWS = spent((AT,), 5.0, doing="rng.choice()")
TRAINS = spent(("train.py(90): fit",), 5.0, doing="loss.backward()")


def steps_of_ten_ms():
    builder = TraceBuilder(devices=())
    for step in range(6):
        builder.step(step, step * 10 * MS, 10 * MS)
        builder.op("aten::mm", step * 10 * MS + 10, 4 * MS)
    return builder.trace()


def run(called, *seen):
    trace = looked_at(thread(*(seen or (DRAWS, TRAINS))))
    return replace(trace.run, samples=replace(trace.run.samples, called=(called,)))


def test_a_draw_that_permutes_all_there_is(outcome):
    """Half of 10 ms, of which 0.2 to 10 % is left."""
    (finding,) = outcome("slow-call", replace(steps_of_ten_ms(), run=run(DRAW))).findings
    assert finding.summary == (
        "rng.choice() in negatives (data.py:15) permutes all of 400,000 to draw 256:"
        " 5.00 ms of a step"
    )
    assert finding.cost_ns_per_step == 5 * MS
    assert finding.saving_ns_per_step == pytest.approx((0.9 * 4.5 * MS, 4.99 * MS), rel=1e-6)
    assert (finding.location.file, finding.location.line) == ("data.py", 15)


def test_inside_of_a_library_the_line_tells(outcome):
    inside = spent(("scipy/signal/_signaltools.py(90): lfilter", AT), 5.0, doing="_linear()")
    long = call(
        "scipy.signal._signaltools.lfilter",
        array("0", 4096),
        Given("1", "float", value=1.0),
        array("2", 200_000),
        doing="sg.lfilter()",
    )
    trace = replace(steps_of_ten_ms(), run=run(long, inside, TRAINS))
    (finding,) = outcome("slow-call", trace).findings
    assert "sg.lfilter() in negatives (data.py:15) multiplies 200,000 numbers" in finding.summary


def test_a_function_that_the_library_calls_back_counts_with_it(outcome):
    back = spent(("data.py(9): <lambda>", "pandas/core/apply.py(40): apply", AT), 5.0)
    rows = call(
        "pandas.core.frame.DataFrame.apply",
        Given("self", "pandas.core.frame.DataFrame", (5000, 4)),
        Given("0", "function"),
        number("axis", 1),
        doing="frame.apply()",
    )
    trace = replace(steps_of_ten_ms(), run=run(rows, back, TRAINS))
    (finding,) = outcome("slow-call", trace).findings
    assert finding.cost_ns_per_step == 5 * MS


def test_a_small_part_of_the_step_is_seen_and_not_told(outcome):
    seen = spent((AT,), 0.2, doing="rng.choice()"), spent(("train.py(90): fit",), 9.8)
    said = outcome("slow-call", replace(steps_of_ten_ms(), run=run(DRAW, *seen)))
    assert (said.answer, said.why) == ("smaller", "smaller than 3 % of the step: 2.0 %")


def test_of_a_run_of_which_nothing_else_was_recorded(outcome):
    trace = replace(looked_at(thread(DRAWS, TRAINS)), run=run(DRAW))
    (finding,) = outcome("slow-call", trace).findings
    assert finding.run_ratio == pytest.approx(0.5 * (1 - 0.051), rel=1e-3)


def test_a_name_alone_says_nothing(outcome):
    said = outcome("slow-call", replace(steps_of_ten_ms(), run=run(call(OLD))))
    assert said.answer == "clear"


WHOLE = array("0", 256, 256, dtype="int64"), array("1", 256, 256, dtype="int64")
SYMMETRIC = array("0", 300, 300, is_of="symmetric")
LETTERS = Given("0", "str", (12,), text="ij,jk,kl->il")
TWO = Given("0", "str", (9,), text="ij,jk->ik")
EDGES = array("1", 101, is_of="even")
WEIGHTS = array("p", 200_000, alike=2)


@pytest.mark.parametrize(
    "known",
    [
        call(
            "numpy.random._generator.Generator.permutation", number("0", 50_000), number("[:]", 9)
        ),
        call("numpy.random._generator.Generator.choice", number("0", 200_000), WEIGHTS, compared=2),
        call("numpy.random._generator.Generator.choice", number("0", 200_000), array("p", 200_000)),
        call("random.Random.sample", Given("0", "collections.deque", (60_000,)), number("1", 64)),
        call("random.Random.shuffle", Given("0", "list", (5000,), of="int")),
        call("numpy.random._generator.Generator.shuffle", array("0", 20_000, 32)),
        call("numpy.linalg.inv", array("0", 300, 300), array("@", 300, 8)),
        call("numpy.linalg.svd", array("0", 900, 32)),
        call("numpy.linalg.eig", SYMMETRIC),
        call("numpy.einsum", LETTERS, *(array(str(n), 60, 60) for n in (1, 2, 3))),
        call("numpy.einsum", TWO, array("1", 300, 300), array("2", 300, 300)),
        call("numpy.argsort", array("0", 200_000), number("[-:]", 64)),
        call("builtins.sorted", Given("0", "list", (20_000,), of="float"), number("[]", 0)),
        call("numpy.vectorize.__call__", array("0", 20_000)),
        call("numpy.sum", array("0", 20_000, dtype="object")),
        call("@", *WHOLE),
        call("numpy.ndarray.mean", array("self", 20_000, dtype="float16")),
        call("@", array("0", 300, 300, is_of="diagonal"), array("1", 300, 300)),
        call("numpy.array", Given("0", "list", (2000,), of="list", of_shape=(32,))),
        call(
            "numpy.concatenate",
            Given(
                "0",
                "list",
                (2,),
                of="array",
                onto=True,
                of_shape=(9000, 64),
                first_of_shape=(5000, 64),
            ),
            compared=2,
        ),
        call("numpy.unique", array("0", 200_000, dtype="int64", value=4999.0)),
        call("numpy.digitize", array("0", 200_000), EDGES),
        call("builtins.sum", array("0", 200_000)),
        call("numpy.convolve", array("0", 200_000), array("1", 4096)),
        call("scipy.signal._signaltools.convolve2d", array("0", 256, 256), array("1", 15, 15)),
        call("numpy.fft.fft", array("0", 16_001, dtype="complex128")),
        call("scipy.spatial.distance.cdist", array("0", 500, 64), array("1", 400, 64)),
        call("scipy.spatial._ckdtree.cKDTree.query", array("0", 3)),
        call("scipy.stats._continuous_distns.norm_gen.pdf", array("0", 5000)),
        call("builtins.list.index", Given("self", "list", (20_000,)), number("0", 3)),
        call("numpy.load", Given("0", "str", (30,)), Given("[?]", "unknown"), compared=1),
        call("ast.literal_eval", Given("0", "str", (5000,))),
        call("json.dumps", Given("0", "list", (2000,), of="float")),
        call("gzip.compress", Given("0", "bytes", (5000,))),
        call("torch.stack", Given("0", "list", (2000,), of="tensor")),
        call(
            "PIL.Image.Image.resize",
            Given("self", "PIL.Image.Image", (2000, 1600)),
            Given("0", "tuple", (2,), of="int", of_shape=(200, 160)),
        ),
    ],
    ids=lambda known: known.called.rpartition(".")[2],
)
def test_slow_ways(known):
    found = way_of(known)
    assert found is not None
    least, most = found[1].left
    assert 0 <= least < most < 1


@pytest.mark.parametrize(
    "healthy",
    [
        call(OLD, number("0", 400_000), number("size", 256)),
        call(OLD, number("0", 500), number("size", 5), flag("replace", False)),
        call(OLD, number("0", 400_000), number("size", 200_000), flag("replace", False)),
        call(
            "numpy.random._generator.Generator.choice",
            number("0", 400_000),
            number("size", 256),
            flag("replace", False),
        ),
        call(
            "numpy.random._generator.Generator.choice",
            number("0", 200_000),
            number("size", 100_000),
            array("p", 200_000),
            compared=2,
        ),
        call("numpy.random._generator.Generator.permutation", number("0", 50_000)),
        call("random.Random.sample", Given("0", "list", (60_000,)), number("1", 64)),
        call("numpy.linalg.inv", array("0", 300, 300)),
        call("numpy.linalg.inv", array("0", 300, 300), array("@", 300, 300)),
        call("numpy.linalg.svd", array("0", 900, 32), flag("full_matrices", False)),
        call("numpy.linalg.eig", array("0", 300, 300)),
        call("numpy.einsum", TWO, array("1", 300, 300), array("2", 300, 300), flag("optimize", 1)),
        call(
            "numpy.einsum",
            Given("0", "str", (8,), text="ij,ij->i"),
            array("1", 3000, 300),
            array("2", 3000, 300),
        ),
        call("numpy.argsort", array("0", 200_000)),
        call("numpy.argsort", array("0", 200_000), number("[:]", 100_000)),
        call("@", array("0", 300, 300), array("1", 300, 300)),
        call("@", WHOLE[0], array("1", 256, 256)),
        call("numpy.ndarray.astype", array("self", 20_000, dtype="float16")),
        call("numpy.stack", Given("0", "list", (2000,), of="array", of_shape=(32,))),
        call("numpy.array", Given("0", "list", (3,), of="int", of_shape=(1, 2, 3))),
        call(
            "numpy.concatenate",
            Given("0", "list", (50,), of="array", of_shape=(9000, 64), first_of_shape=(5000, 64)),
            compared=2,
        ),
        call("numpy.unique", array("0", 200_000)),
        call("numpy.unique", array("0", 200_000, dtype="int64", value=4e9)),
        call("numpy.digitize", array("0", 200_000), array("1", 101)),
        call("builtins.sum", Given("0", "list", (200_000,), of="float")),
        call("numpy.convolve", array("0", 200_000), array("1", 16)),
        call("numpy.fft.fft", array("0", 16_384, dtype="complex128")),
        call("numpy.fft.rfft", array("0", 16_384)),
        call("scipy.spatial.distance.cdist", array("0", 500, 3), array("1", 400, 3)),
        call("scipy.spatial._ckdtree.cKDTree.query", array("0", 500, 3)),
        call("builtins.list.index", Given("self", "list", (12,)), number("0", 3)),
        call("numpy.load", Given("0", "str", (30,)), compared=1),
        call("numpy.load", Given("0", "str", (30,)), Given("[]", "str", (1,)), compared=1),
        call(
            "numpy.load",
            Given("0", "str", (30,)),
            Given("mmap_mode", "str", (1,)),
            Given("[]", "int", value=3.0),
            compared=1,
        ),
        call("builtins.list.pop", Given("self", "list", (20_000,))),
        call("json.dumps", Given("0", "dict", (2000,))),
        call("gzip.compress", Given("0", "bytes", (5000,)), number("1", 1)),
        call("torch.stack", Given("0", "list", (2000,), of="tensor", of_shape=(32,))),
    ],
    ids=lambda healthy: healthy.called.rpartition(".")[2],
)
def test_look_alikes(healthy):
    assert way_of(healthy) is None


def test_beside_a_device_that_works_less_is_sure(outcome):
    """The device works for 4 of each 10 ms, and may hide as much of the host's 5."""
    builder = TraceBuilder()
    for step in range(6):
        builder.step(step, step * 10 * MS, 10 * MS)
        builder.launch(step * 10 * MS, 5_000, "work", step * 10 * MS, 4 * MS)
        builder.launch(step * 10 * MS + 9 * MS, 5_000, "end", step * 10 * MS + 10 * MS - 1000, 1000)
    (finding,) = outcome("slow-call", replace(builder.trace(), run=run(DRAW))).findings
    least, most = finding.saving_ns_per_step
    assert least == pytest.approx((0.9 * 4.5 - 4) * MS, rel=0.05)
    assert most == pytest.approx(4.99 * MS, rel=0.01)
    assert least < finding.likely_saving_ns < most
