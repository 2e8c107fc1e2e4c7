"""Causes of runs of which nothing was recorded but looks at their threads."""

from dataclasses import replace

import pytest

from looked_at_runs import (
    IMPORTING,
    SECOND_NS,
    child,
    computing,
    in_numpy,
    looked_at,
    spent,
    thread,
    waiting,
)
from pinchpoint.diagnosis.engine import run_rules
from pinchpoint.report import diagnose
from pinchpoint.report.words.closing import closing_sentence
from pinchpoint.report.words.mean import mean_sentences
from pinchpoint.report.words.report import gain
from pinchpoint.report.words.steps import step_sentence
from pinchpoint.trace import RunCourse
from pinchpoint.trace.run_samples import CacheUse, Garbage
from sampled_runs import sampled
from sampled_runs import samples as run_of_steps

WAITS_FOR_POOL = spent(("multiprocessing/pool.py(3): get", "work.py(7): main"), 20, on_core=0.0)
WAITS_FOR_THREADS = spent(("threading.py(9): wait", "work.py(7): main"), 20, on_core=0.0, held=1.0)
ASLEEP = spent(("multiprocessing/queues.py(3): get",), 19, on_core=0.0)
TURNS = spent(("work.py(3): parse",), 20, on_core=0.25, held=1.0)
PICKLES = spent(
    ("multiprocessing/connection.py(9): _send", "work.py(7): main"), 10, doing="write()"
)


def first(trace):
    report = diagnose(trace)
    assert not report.crashed
    assert report.steps.how == "none"
    found = [(f.id, f.location.function if f.location else None) for f in report.findings]
    return found[0] if found else None


@pytest.mark.parametrize(
    ("trace", "found"),
    [
        pytest.param(
            looked_at(thread(computing(5, "parse", 15, "pattern.match()"), in_numpy(9, "fit", 5))),
            ("run-hotspot", "parse"),
            id="one call that keeps the lock",
        ),
        pytest.param(looked_at(thread(in_numpy(9, "fit", 20))), None, id="NumPy"),
        pytest.param(
            looked_at(thread(*(computing(10 * n, f"f{n}", 2) for n in range(10)))),
            None,
            id="spread over many functions",
        ),
        pytest.param(
            looked_at(thread(waiting(5, "poll", 6, "S hrtimer_nanosleep"), in_numpy(9, "fit", 14))),
            ("run-waits", "poll"),
            id="sleep",
        ),
        pytest.param(
            looked_at(thread(waiting(5, "poll", 1, "S hrtimer_nanosleep"), in_numpy(9, "fit", 19))),
            None,
            id="a little sleep",
        ),
        pytest.param(
            looked_at(thread(spent(IMPORTING, 12), in_numpy(9, "fit", 8))),
            ("run-imports", "<module>"),
            id="imports",
        ),
        pytest.param(
            looked_at(
                thread(computing(5, "query", 20)),
                garbage=Garbage(8 * SECOND_NS, 90, 8 * SECOND_NS, ("work.py(5): query",)),
            ),
            ("python-gc", "query"),
            id="garbage that is called for",
        ),
        pytest.param(
            looked_at(thread(computing(5, "parse", 20)), garbage=Garbage(9 * SECOND_NS, 90, 0, ())),
            ("run-hotspot", "parse"),
            id="garbage of one function",
        ),
        pytest.param(
            looked_at(
                thread(computing(5, "parse", 14), computing(9, "fit", 6)),
                garbage=Garbage(11 * SECOND_NS, 90, 0, ()),
            ),
            ("python-gc", None),
            id="garbage that may be of several",
        ),
        pytest.param(
            looked_at(
                thread(WAITS_FOR_THREADS),
                *(thread(TURNS, main=False, name=f"pool-{n}") for n in range(4)),
            ),
            ("gil-contention", "parse"),
            id="threads at one lock",
        ),
        pytest.param(
            looked_at(
                thread(WAITS_FOR_POOL),
                children=[child(in_numpy(3, "f", 20)), *[child(in_numpy(3, "f", 1), ASLEEP)] * 3],
            ),
            ("run-pool", "f"),
            id="one worker does most",
        ),
        pytest.param(
            looked_at(thread(WAITS_FOR_POOL), children=[child(in_numpy(3, "f", 20))] * 2),
            None,
            id="workers that are even",
        ),
        pytest.param(
            looked_at(thread(PICKLES), children=[child(PICKLES, in_numpy(3, "f", 5))] * 2),
            ("run-pool", "main"),
            id="what workers are sent",
        ),
        pytest.param(
            looked_at(
                thread(WAITS_FOR_POOL),
                children=[child(spent(("work.py(3): f",), 20, on_core=0.3), queued=14)] * 6,
            ),
            ("thread-oversubscription", None),
            id="more threads than cores",
        ),
        pytest.param(
            looked_at(
                thread(in_numpy(9, "fit", 20)),
                page_faults=200_000,
                kernel_ns=10 * SECOND_NS,
                user_ns=10 * SECOND_NS,
            ),
            ("cpu-page-faults", "fit"),
            id="new memory",
        ),
        pytest.param(
            looked_at(thread(in_numpy(9, "fit", 20)), threads=1, python_threads=1, cores=8.0),
            ("cpu-few-threads", "fit"),
            id="one thread computes",
        ),
    ],
)
def test_the_first_finding(trace, found):
    assert first(trace) == found


def test_what_is_said_is_a_bound_with_its_interval():
    report = diagnose(looked_at(thread(computing(5, "parse", 15, "x.f()"), in_numpy(9, "fit", 5))))
    (found,) = report.findings
    assert gain(report, found) == "at most 15.0 of 20.0 s"
    assert (found.predicted_step_ns, found.confidence) == (None, "low")
    assert sum(part.ns_per_step for part in report.breakdown) == report.steps.typical_ns
    assert "1,000 looks at its main thread" in step_sentence(report)
    assert "fit (work.py:9) at numpy.linalg.linalg.eigh: 5.00 of 20.0 s" in closing_sentence(report)
    assert report.run.places[0].range_ns[0] < 15 * SECOND_NS < report.run.places[0].range_ns[1]
    assert report.not_applicable
    assert "growing-steps" not in report.not_applicable


@pytest.mark.parametrize(("looks", "verdict"), [(10, "cannot conclude"), (60, "limited")])
def test_few_looks_conclude_nothing_or_little(looks, verdict):
    one = spent(("work.py(5): parse",), 2, held=1.0, looks=looks)
    report = diagnose(looked_at(thread(one)))
    assert report.health.verdict == verdict
    assert f"{looks} looks at its main thread" in report.health.facts[0].detail
    assert bool(report.findings) == (verdict == "limited")


def test_a_cache_that_misses_is_told_with_its_function_and_one_that_hits_is_not():
    seen = thread(computing(5, "build", 15), in_numpy(9, "fit", 5))
    trace = looked_at(seen)
    for hits, misses, found in ((3, 900, "cache-misses"), (900, 200, "run-hotspot")):
        cache = CacheUse("work.py", 4, "build", hits, misses, most=128, held=128)
        samples = replace(trace.run.samples, caches=(cache,))
        assert first(replace(trace, run=replace(trace.run, samples=samples))) == (found, "build")


def test_what_passes_before_and_after_the_steps_is_said_with_its_places():
    prepared = thread(spent(IMPORTING, 2), computing(5, "prepare", 28))
    samples = replace(
        run_of_steps(every=0),
        before=prepared,
        threads=(thread(computing(95, "train", 3)),),
        after=((0, 10_000_000),),
        after_ns=10 * SECOND_NS,
    )
    trace = sampled(samples)
    course = RunCourse(45 * SECOND_NS, before_ns=30 * SECOND_NS)
    report = diagnose(replace(trace, run=replace(trace.run, course=course)))
    assert report.findings[0].id == "run-phases"
    assert report.findings[0].location.function == "prepare"
    assert gain(report, report.findings[0]) == "at most 28.0 of 45.0 s"
    said = " ".join(mean_sentences(report))
    assert "Its steps are 5.00 of the run's 45.0 s" in said
    assert "30.0 s before the third step (28.0 in prepare (work.py:5))" in said
    assert "10.0 s after the last one" in said
    assert "run-hotspot" not in {f.id for f in report.findings} | set(report.clear)


def test_a_call_that_gives_the_lock_up_for_much_of_its_time_is_no_hotspot_of_the_interpreter():
    """As a product of arrays, at which looks wait that came in what keeps the lock before it."""
    assign = ("work.py(5): assign",)
    halves = [spent(assign, 9, doing="@", held=held) for held in (1.0, 0.1)]
    report = diagnose(looked_at(thread(*halves)))
    assert not report.findings
    why = {one.id: one.why for one in report.not_checked}["run-hotspot"]
    assert why.startswith("most looks at assign (work.py:5) found it at @, which gives")
    kept = [spent(assign, 9, doing="table.index()", held=held) for held in (1.0, 0.9)]
    assert first(looked_at(thread(*kept))) == ("run-hotspot", "assign")


def test_waiting_at_the_end_that_no_function_of_the_program_calls_is_said_as_what_it_is():
    """As of loader workers that are waited for when the interpreter ends."""
    frames = (
        "selectors.py(415): select",
        "multiprocessing/connection.py(1136): wait",
        "multiprocessing/popen_fork.py(40): wait",
        "multiprocessing/process.py(149): join",
        "torch/utils/data/dataloader.py(1703): _clean_up_worker",
    )
    samples = replace(
        run_of_steps(every=0),
        before=thread(spent(IMPORTING, 2), computing(5, "prepare", 13)),
        threads=(thread(computing(95, "train", 3)),),
    )
    at = len(samples.frames)
    samples = replace(
        samples,
        frames=(*samples.frames, *frames),
        stacks=(*samples.stacks, tuple(range(at, at + len(frames)))),
        after=((len(samples.stacks), 40_000_000),),
        after_ns=40 * SECOND_NS,
    )
    trace = sampled(samples)
    course = RunCourse(72 * SECOND_NS, before_ns=15 * SECOND_NS)
    report = diagnose(replace(trace, run=replace(trace.run, course=course)))
    said = " ".join(mean_sentences(report))
    assert "40.0 s after the last one (40.0 waiting for another process, called by no" in said


def test_a_function_counts_with_what_it_calls_where_nothing_in_it_is_enough():
    """Three functions of 8 s each, called by one; what calls the steps as well is not told."""
    main = "work.py(90): main"
    called = [
        spent((f"work.py({line}): {name}", "work.py(50): prepare", main), 8)
        for line, name in ((5, "read"), (15, "join"), (25, "count"))
    ]
    steps = spent(("work.py(95): train", main), 3)
    samples = replace(run_of_steps(every=0), before=thread(*called), threads=(thread(steps),))
    course = RunCourse(45 * SECOND_NS, before_ns=24 * SECOND_NS)
    trace = sampled(samples)
    report = diagnose(replace(trace, run=replace(trace.run, course=course)))
    (finding,) = [f for f in report.findings if f.id == "run-phases"]
    assert str(finding.location) == "prepare (work.py:50)"
    assert gain(report, finding) == "at most 24.0 of 45.0 s"


@pytest.mark.parametrize(("step_s", "found"), [(6, False), (0.1, True)])
def test_the_first_steps_of_a_run_with_few_are_no_preparation(step_s, found):
    """Twelve seconds pass in the function of the steps before the third one begins."""
    trained = thread(computing(95, "train", 12))
    samples = replace(run_of_steps(every=0), before=trained, threads=(trained,))
    trace = sampled(samples)
    facts = replace(
        trace.run,
        course=RunCourse(30 * SECOND_NS, before_ns=12 * SECOND_NS),
        unprofiled_step_ns=(int(step_s * SECOND_NS),) * 5,
    )
    report = diagnose(replace(trace, run=facts))
    assert ("run-phases" in {f.id for f in report.findings}) == found


def test_recordings_without_a_run_are_not_asked_about_one():
    asked = {o.id for o in run_rules(sampled(run_of_steps()))}
    assert "run-phases" in asked
    assert "run-waits" not in asked


def test_a_run_whose_torch_was_not_recorded_says_so_of_its_causes():
    seen = spent(("torch/nn/modules/linear.py(9): forward", "work.py(5): train"), 20)
    report = diagnose(looked_at(thread(seen)))
    assert not report.not_applicable
    assert any(item.id == "launch-bound" for item in report.not_checked)


def planning(file, function, seconds, doing="cufft.PlanNd()"):
    """Inside of a library that the main thread has called in peak()."""
    return spent((f"{file}(468): {function}", "work.py(9): peak"), seconds, doing=doing)


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        pytest.param(
            planning("cupy/fft/_fft.py", "_get_cufft_plan_nd", 9),
            ("prepared-again", "peak"),
            id="plans for ever new shapes",
        ),
        pytest.param(
            planning("cupy/fft/_fft.py", "_exec_fft", 9, "cufft.Plan1d()"),
            ("prepared-again", "peak"),
            id="told by the call",
        ),
        pytest.param(
            planning("cupy/fft/_fft.py", "_exec_fft", 9, "plan.fft()"), None, id="transforms"
        ),
        pytest.param(
            planning("cupy/fft/_fft.py", "_get_cufft_plan_nd", 0.9), None, id="once for each shape"
        ),
        pytest.param(planning("numpy/fft/_pocketfft.py", "_raw_fft", 9), None, id="NumPy"),
    ],
)
def test_what_a_library_prepares_in_nearly_each_call(seen, found):
    rest = [in_numpy(20 + n, f"f{n}", 1) for n in range(5)]  # each less than a tenth or no loop
    trace = looked_at(thread(seen, *rest))
    assert first(trace) == found
    if found:
        (finding,) = diagnose(trace).findings
        assert finding.cost_ns_per_step == pytest.approx(9 * SECOND_NS)
        assert "set_size" in finding.hint
