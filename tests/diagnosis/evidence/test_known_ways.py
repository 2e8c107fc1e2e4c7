"""What is known of a call at a place that takes long."""

from dataclasses import replace

from looked_at_runs import looked_at, spent, thread
from pinchpoint.diagnosis.evidence.known_ways import with_known_way
from pinchpoint.diagnosis.finding import Found, Location, Small
from pinchpoint.trace.run_samples import Called, Given

AT = "/srv/app/data.py(20): negatives"
DRAW = Called(
    AT,
    "self.rng.choice()",
    "numpy.random.mtrand.RandomState.choice",
    19,
    1,
    (
        Given("0", "int", value=2.5e6),
        Given("size", "int", value=512.0),
        Given("replace", "bool", value=0.0),
    ),
)
OTHER = replace(DRAW, called="numpy.ndarray.take", doing="self.features.take()", given=())
PLACE = Location(file="data.py", line=19, function="negatives")
FOUND = Found(
    summary="The host computes for 247 ms a step", evidence=(), location=PLACE, fix="Less"
)


def run(*called):
    trace = looked_at(thread(spent((AT,), 5.0, doing="self.rng.choice()")))
    samples = replace(trace.run.samples, called=called)
    return replace(trace, run=replace(trace.run, samples=samples))


def test_the_call_that_most_looks_there_found_says_why_and_what_to_do():
    found = with_known_way(run(DRAW, replace(OTHER, looks=9)), FOUND)
    assert found.summary == (
        "The host computes for 247 ms a step; self.rng.choice() permutes all of 2,500,000 to draw"
        " 512"
    )
    assert found.fix.startswith("Draw by np.random.default_rng()")
    assert (found.location.file, found.location.line) == ("data.py", 20)


def test_where_it_is_not_known_the_finding_stays():
    most_elsewhere = replace(OTHER, looks=40)
    for trace in (run(), run(DRAW, most_elsewhere), run(replace(DRAW, looks=3))):
        assert with_known_way(trace, FOUND) is FOUND
    assert with_known_way(run(replace(DRAW, at="other.py(20): negatives")), FOUND) is FOUND
    small = Small(0.01, 0.03)
    assert with_known_way(run(DRAW), small) is small


def test_a_fix_that_helps_as_well_is_told_after_it():
    found = with_known_way(run(DRAW), FOUND, keeps_fix=True)
    assert found.fix.endswith("draws a few of many alone. Else less")
