"""The join of a run's recordings, on answers that are made up for each of them."""

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from builders import TraceBuilder
from pinchpoint.analysis.replay.changes import RemoveHostTime
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.diagnosis import windows
from pinchpoint.diagnosis.engine import Diagnosis, Ranked
from pinchpoint.diagnosis.evidence.python_kept import kept_ratio
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.other_window import located
from pinchpoint.diagnosis.registry import rules
from pinchpoint.diagnosis.rule import Outcome
from pinchpoint.trace import HostKind, RunFacts
from program import Program

PLACE = Location(file="train.py", line=88, function="save")


def stepping(step_us):
    builder = TraceBuilder()
    for number in range(5):
        builder.annotation(f"ProfilerStep#{number}", number * step_us, step_us)
        builder.op("aten::mm", number * step_us + 1, step_us - 2)
    return builder.trace()


def ranked(id_, saving, base, location=None):
    finding = Found(
        summary=f"{id_} as recorded",
        evidence=(Evidence("what", 1, "count"),),
        location=location,
        cost_ns_per_step=saving,
        fix="look here" if location else "record it again",
    )
    after = Prediction(base - saving, (base - saving, base), base)
    return Ranked(id_, finding, after, saving)


def said(*found, **answers):
    answers = {r.id: "found" for r in found} | {
        id_.replace("_", "-"): answer for id_, answer in answers.items()
    }
    outcomes = [
        Outcome(id_, answers.get(id_, "clear"), why="because", record="more") for id_ in rules()
    ]
    return Diagnosis(found, None, tuple(outcomes))


@pytest.fixture
def joined(monkeypatch):
    """The answer about a run from the answers about its bare window and the one with names."""

    def join(bare, named=None, memory=None, bound_by=("host", "host"), timed=()):
        bare_trace, named_trace, memory_trace = stepping(100), stepping(200), stepping(300)
        run = RunFacts(
            named=named_trace if named else None,
            memory=memory_trace if memory else None,
            unprofiled_step_ns=timed,
        )
        bare_trace = replace(bare_trace, run=run)
        answers = {bare_trace: bare, named_trace: named, memory_trace: memory}
        bounds = dict(zip((bare_trace, named_trace), bound_by, strict=True))
        monkeypatch.setattr(windows, "diagnose_one", answers.__getitem__)
        monkeypatch.setattr(windows, "bound", lambda trace: SimpleNamespace(by=bounds[trace]))
        return windows.diagnose(bare_trace)

    return join


def answer(diagnosis, id_):
    return next(o for o in diagnosis.outcomes if o.id == id_)


def test_a_trace_without_other_recordings_is_answered_alone(joined):
    bare = said(ranked("launch-bound", 40, 100))
    assert joined(bare) == bare


def in_functions(*functions):
    """A step in which each of these calls the same operator once."""
    builder = TraceBuilder()
    builder.annotation("ProfilerStep#0", 0, 1000)
    for number, function in enumerate(functions):
        builder.python(f"train.py(10): {function}", 1 + number * 100, 90)
        builder.op("aten::item", 2 + number * 100, 80)
    return builder.trace()


@pytest.mark.parametrize(
    ("functions", "place"),
    [(["log"], "log"), (["log", "log", "b"], "log"), (["a", "b", "c"], None)],
)
def test_a_finding_that_knows_its_operator_alone_is_placed_where_that_mostly_runs(functions, place):
    alone = ranked("sync-in-loop", 40, 100, Location(operator="aten::item"))
    placed = located(alone, in_functions(*functions)).finding.location
    told = (placed.file, placed.function) if placed.file else (None, placed.operator)
    assert told == (("train.py", place) if place else (None, "aten::item"))


def test_a_cause_of_both_has_the_times_of_one_and_the_place_of_the_other(joined):
    bare = said(ranked("checkpoint-stall", 40, 100))
    named = said(ranked("checkpoint-stall", 90, 200, PLACE))
    (found,) = joined(bare, named).found
    assert (found.saving_ns, found.predicted.step_ns) == (40, 60)
    assert (found.finding.location, found.finding.fix) == (PLACE, "look here")


def test_a_gain_that_only_shapes_tell_is_the_other_windows(joined):
    bare = said(replace(ranked("slow-operator", 40, 100), predicted=None, saving_ns=0))
    (found,) = joined(bare, said(ranked("slow-operator", 50, 200, PLACE))).found
    assert (found.saving_ns, found.predicted.base_ns) == (25, 100)


def test_all_together_is_the_other_windows_where_the_gains_are(joined):
    unknown = replace(ranked("slow-operator", 40, 100), predicted=None, saving_ns=0)
    of_names = (ranked("slow-operator", saving, 200, PLACE) for saving in (80, 40))
    named = replace(said(*of_names), together=Prediction(80, (60, 100), 200))
    assert joined(said(unknown, unknown), named).together == Prediction(40, (30, 50), 100)


@pytest.mark.parametrize("of", ["a", "of the"])
@pytest.mark.parametrize(("step_ns", "said_so"), [(100, True), (190, False)])
def test_times_with_stacks_say_so_where_the_bare_step_is_far_shorter(joined, step_ns, said_so, of):
    slow = ranked("python-gc", 50, 200, PLACE)
    told = msgspec.structs.replace(slow.finding, summary=f"It takes 85.7 ms {of} step")
    bare = said(ranked("launch-bound", 10, step_ns), python_gc="not checked")
    found = {r.id: r.finding for r in joined(bare, said(replace(slow, finding=told))).found}
    more = " (as recorded with stacks, where a step takes 200 ns)" * said_so
    assert found["python-gc"].summary == f"It takes 85.7 ms {of} step{more}"


def test_a_cause_that_needs_names_is_kept_with_its_share_of_the_bare_step(joined):
    bare = said(ranked("launch-bound", 10, 100), python_gc="not checked")
    named = said(ranked("python-gc", 50, 200, PLACE))
    found = {r.id: r for r in joined(bare, named).found}
    assert found["python-gc"].saving_ns == 25
    assert found["python-gc"].predicted.base_ns == 100
    assert found["python-gc"].finding.confidence == "medium"
    assert "its gain was scaled" in found["python-gc"].finding.evidence[-1].what
    assert answer(joined(bare, named), "python-gc").answer == "found"


def test_what_only_names_show_counts_from_the_mean_step_where_that_is_todays(joined):
    """As the ladder does: nine steps of 100 ns and one of 1,000."""
    named = said(ranked("python-gc", 50, 200, PLACE))
    (found,) = joined(said(python_gc="not checked"), named, timed=(100,) * 9 + (1000,)).found
    assert found.predicted.base_ns == 190


@pytest.mark.parametrize(("bound_by", "kept"), [(("host", "host"), 1), (("device", "host"), 0)])
def test_what_the_bare_window_cleared_is_told_only_if_the_same_bounds_both(joined, bound_by, kept):
    found = joined(said(), said(ranked("python-gc", 50, 200, PLACE)), bound_by=bound_by).found
    assert len(found) == kept


@pytest.mark.parametrize("dropped", [True, False])
def test_what_the_bare_window_found_small_stays_small(joined, dropped):
    """What the engine dropped was judged with all that tells it; what a rule saw a little of may be
    more where names and places show the rest."""
    small = ranked("python-gc", 1, 100)
    bare = said(python_gc="smaller")
    found = (small.finding,) if dropped else ()
    outcomes = [replace(o, findings=found if o.id == small.id else ()) for o in bare.outcomes]
    named = said(ranked("python-gc", 50, 200, PLACE))
    joint = joined(replace(bare, outcomes=tuple(outcomes)), named)
    assert [r.id for r in joint.found] == ([] if dropped else ["python-gc"])


def test_a_general_cause_yields_to_the_special_one_that_names_show(joined):
    child, parent = next((id_, k.rule.parent) for id_, k in rules().items() if k.rule.parent)
    bare = said(ranked(parent, 40, 100), **{child: "not checked"})
    diagnosis = joined(bare, said(ranked(child, 60, 200, PLACE)))
    assert [r.id for r in diagnosis.found] == [child]
    assert answer(diagnosis, parent).covered_by == (child,)


def test_causes_about_memory_come_from_the_snapshot_and_nothing_else_does(joined):
    bare = said(graph_retained="not checked", python_gc="not checked")
    leak = replace(ranked("graph-retained", 0, 100), predicted=None)
    diagnosis = joined(bare, memory=said(leak, ranked("python-gc", 50, 300)))
    assert [r.id for r in diagnosis.found] == ["graph-retained"]
    assert answer(diagnosis, "memory-leak").answer == "clear"
    assert answer(diagnosis, "python-gc").answer == "not checked"


def test_findings_of_one_cause_have_the_place_of_the_same_operator(joined):
    def of(operator, line=None):
        at = Location(operator=operator, file="train.py" if line else None, line=line)
        return ranked("slow-operator", 30, 100, at)

    answer_ = joined(said(of("aten::a"), of("aten::b")), said(of("aten::b", 2), of("aten::a", 1)))
    assert [(r.finding.location.operator, r.finding.location.line) for r in answer_.found] == [
        ("aten::a", 1),
        ("aten::b", 2),
    ]


def test_a_gain_after_another_fix_still_counts_from_that_fix(joined):
    first = ranked("decode-host-overhead", 80, 200)
    after = replace(ranked("expanded-copies", 180, 200, PLACE), saving_ns=100, given=(first.id,))
    found = joined(said(ranked(first.id, 40, 100)), said(first, after), bound_by=("host", "host"))
    (last,) = [one for one in found.found if one.given]
    assert (last.predicted.step_ns, last.saving_ns) == (10, 50)  # of 60 with the first one fixed


def test_no_fix_wins_more_python_than_the_bare_step_has(joined):
    """With stacks 160 of 200 ns are Python, without them 10 of 100: 5 for half of it."""

    def looping(step_ns, python_ns):
        builder = TraceBuilder()
        for number in range(5):
            at = number * step_ns
            builder.annotation(f"ProfilerStep#{number}", at, step_ns)
            builder.op("aten::mm", at + python_ns, step_ns - python_ns)
        return builder.trace()

    named, removed = looping(200, 160), np.arange(5) * 200
    finding = msgspec.structs.replace(
        ranked("host-hotspot", 80, 200).finding, changes=(RemoveHostTime(removed, removed + 80),)
    )
    assert kept_ratio(looping(100, 10), named, finding) == pytest.approx(0.1 / 0.8, rel=0.01)
    assert kept_ratio(looping(100, 90), named, finding) == 1.0


def test_beside_a_device_that_is_python_while_it_has_nothing_to_do():
    """With stacks 9 of 10 ms, without them 1 of 2."""

    def counting(python_us):
        p = Program()
        for _ in p.steps(5):
            with p.frame("words.py(8): count"):
                p.busy(python_us)
            p.kernel("gemm", 1_000)
            p.sync()
        return p.trace()

    named = counting(9_000)
    host = named.host_ops
    rows = np.flatnonzero(host["kind"] == HostKind.PYTHON)
    removed = RemoveHostTime(host["start_ns"][rows], host.end_ns[rows])
    finding = msgspec.structs.replace(ranked("host-hotspot", 1, 2).finding, changes=(removed,))
    assert kept_ratio(counting(1_000), named, finding) == pytest.approx(0.5 / 0.9, rel=0.1)
    assert kept_ratio(counting(18_000), named, finding) == 1.0


def test_shapes_tell_what_unaligned_products_would_take_and_the_bare_window_how_long_they_took(
    joined,
):
    bare, named = ranked("misaligned-dims", 300, 1_000), ranked("misaligned-dims", 1_400, 2_000)
    (one,) = joined(said(bare), said(named)).found
    assert (one.predicted.base_ns, one.predicted.step_ns, one.saving_ns) == (1_000, 300, 700)
    assert one.finding.cost_ns_per_step == 300  # as the bare window has it
    bare, named = ranked("unfused-optimizer", 300, 1_000), ranked("unfused-optimizer", 1_400, 2_000)
    (one,) = joined(said(bare), said(named)).found
    assert one.saving_ns == 300


def test_what_a_shown_finding_explains_by_way_of_another_is_not_told(joined):
    """The window with names has launch-bound below decode-host-overhead, and that explained."""
    bare = said(ranked("launch-bound", 500, 1_000))
    named = said(ranked("prepared-for-each-shape", 600, 1_000))
    by = {"launch-bound": "decode-host-overhead", "decode-host-overhead": "prepared-for-each-shape"}
    outcomes = tuple(
        replace(o, answer="covered", covered_by=(by[o.id],)) if o.id in by else o
        for o in named.outcomes
    )
    bare = replace(
        bare,
        outcomes=tuple(
            replace(o, answer="not checked") if o.id == "prepared-for-each-shape" else o
            for o in bare.outcomes
        ),
    )
    found = joined(bare, replace(named, outcomes=outcomes))
    assert [one.id for one in found.found] == ["prepared-for-each-shape"]
    assert answer(found, "launch-bound").covered_by == ("prepared-for-each-shape",)
