"""The order of the ladder: what is won, for what it takes."""

from dataclasses import replace

import msgspec
import pytest

from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.diagnosis.engine import Diagnosis, Ranked
from pinchpoint.diagnosis.finding import Found, Location
from pinchpoint.diagnosis.ladder import Effort, effort_of, in_order, ladder
from pinchpoint.report import diagnose
from pinchpoint.report.documents.ladder import LadderInfo, RungInfo
from pinchpoint.report.pages.report import report_page
from pinchpoint.report.terminal import Look, render
from pinchpoint.report.words.ladder import EFFORT, why_this_order
from program import Program

BASE = 1000


def ranked(id_, step, high, given=(), *, once_a_step=False):
    after = Prediction(step, (step // 2, high), BASE)
    found = Found(summary="", evidence=(), once_a_step=once_a_step)
    return Ranked(id_, found, after, BASE - step, given)


def order(*found):
    return [r.id for r in in_order(Diagnosis(found, None, ())).found]


@pytest.mark.parametrize(
    ("id_", "confirm", "effort"),
    [
        (
            "dataloader-starved",
            "pinchpoint try --knob num_workers=8 -- python a.py",
            Effort.SETTING,
        ),
        ("dataloader-starved", "pinchpoint bench ab -- a b", Effort.LINES),  # fewer, larger tensors
        ("unfused-pointwise", "pinchpoint try --knob compile -- python a.py", Effort.LINES),
        ("sync-in-loop", "pinchpoint bench ab -- a b", Effort.LINES),
        ("launch-bound", "pinchpoint try --knob compile -- python a.py", Effort.WORK),
        ("slow-operator", "pinchpoint bench ab -- a b", Effort.SEARCH),
        ("device-copies", "", Effort.LINES),
    ],
)
def test_what_a_fix_takes(id_, confirm, effort):
    assert effort_of(id_, confirm) is effort


def test_what_is_sure_comes_before_what_may_win_nothing():
    assert order(ranked("sync-in-loop", 900, BASE), ranked("launch-bound", 300, 500)) == [
        "launch-bound",
        "sync-in-loop",
    ]


def test_a_few_lines_come_before_more_work_for_a_little_more():
    assert order(ranked("launch-bound", 300, 500), ranked("sync-in-loop", 500, 600)) == [
        "sync-in-loop",
        "launch-bound",
    ]


@pytest.mark.parametrize(
    ("step_then", "first"),
    [(900, "slow-operator"), (500, "sync-in-loop")],
    ids=["wins little beside it", "wins half of it"],
)
def test_a_place_without_a_known_fix_comes_first_where_it_wins_several_times_as_much(
    step_then, first
):
    found = ranked("slow-operator", 100, 200), ranked("sync-in-loop", step_then, step_then + 50)
    assert order(*found)[0] == first


@pytest.mark.parametrize(
    ("once_a_step", "step_then", "first"),
    [
        (True, 510, "host-hotspot"),  # they win the same: the work is the cause
        (False, 510, "sync-in-loop"),  # several waits a step are one themselves
        (True, 700, "sync-in-loop"),  # more than this work is won
    ],
)
def test_work_of_the_host_comes_before_a_wait_once_a_step_that_lets_it_show(
    once_a_step, step_then, first
):
    wait = ranked("sync-in-loop", 500, 600, once_a_step=once_a_step)
    found = wait, ranked("host-hotspot", step_then, step_then + 100)
    assert order(*found)[0] == first


@pytest.mark.parametrize(
    ("step", "high", "first"),
    [
        (750, 850, "unused-gradients"),
        (750, 990, "unfused-pointwise"),
        (850, 900, "unfused-pointwise"),
    ],
    ids=["a third as much", "not surely", "less than a third"],
)
def test_work_that_nobody_needs_comes_before_what_a_compiler_makes_quicker(step, high, first):
    found = ranked("unfused-pointwise", 500, 600), ranked("unused-gradients", step, high)
    assert order(*found)[0] == first


def test_needless_work_passes_no_other_fix_that_wins_more():
    found = ranked("misaligned-dims", 500, 600), ranked("unused-gradients", 750, 850)
    assert order(*found)[0] == "misaligned-dims"


def test_what_pays_after_others_stays_behind_them():
    after = ranked("pageable-h2d", 100, 200, given=("sync-in-loop",))
    assert order(after, ranked("sync-in-loop", 900, 990))[0] == "sync-in-loop"


def test_a_cause_found_twice_has_a_gain_of_its_own_each_time():
    unknown = Ranked("slow-operator", Found(summary="", evidence=()), None, 0)
    little, much = ranked("sync-in-loop", 900, 950), ranked("slow-operator", 100, 200)
    said = in_order(Diagnosis((little, much, unknown), None, ()))
    assert said.found == (much, little, unknown)


def test_what_is_no_time_keeps_its_place():
    memory = Ranked("memory-leak", Found(summary="", evidence=(), consequence="x"), None, 0)
    found = (ranked("sync-in-loop", 900, BASE), memory, ranked("launch-bound", 300, 500))
    assert order(*found) == ["launch-bound", "memory-leak", "sync-in-loop"]


def test_the_ladder_has_the_order_of_the_findings():
    found = (
        ranked("launch-bound", 600, 700),
        ranked("no-mixed-precision", 100, 200, given=("launch-bound", "layout-nchw")),
        ranked("layout-nchw", 500, 590, given=("launch-bound",)),
    )
    said = in_order(Diagnosis(found, None, ()))
    rungs = ladder(waiting_for_python(), said, host=False).rungs
    assert [rung.id for rung in rungs] == [one.id for one in said.found]


def waiting_for_python():
    """Steps of 10 ms whose device waits for 6 ms of Python that no finding names."""
    p = Program()
    for _ in p.steps(6):
        with p.frame("model.py(20): head"), p.row("aten::mm"):
            p.kernel("gemm", 4_000)
        p.sync()
        p.host("data.py(9): prepare", 6_000)
    return p.trace()


def test_a_line_that_no_finding_explains_stands_on_the_ladder():
    trace = waiting_for_python()
    left = ladder(trace, Diagnosis((), None, ())).unexplained
    assert (left.id, left.on_host, left.sure_ns) == ("prepare (data.py:9)", True, 0)
    assert left.base_ns - left.step_ns == pytest.approx(6_000_000, rel=0.05)
    assert ladder(trace, Diagnosis((), None, ()), host=False).unexplained is None


def test_without_any_finding_the_heaviest_pieces_stand_with_what_they_are_worth():
    p = Program()
    for _ in p.steps(6):
        for operator, us in (("aten::mm", 6_000), ("aten::add", 3_000), ("aten::relu", 300)):
            with p.frame("model.py(20): head"), p.row(operator):
                p.kernel(f"{operator[6:]}_kernel", us)
    trace = p.trace()
    found = ladder(trace, Diagnosis((), None, ()))
    assert [rung.id for rung in found.heaviest] == ["aten::mm", "aten::add"]  # head is the step
    worth = [rung.base_ns - rung.step_ns for rung in found.heaviest]
    assert worth == pytest.approx([6_000_000, 3_000_000], rel=0.05)
    assert all(rung.free and not rung.sure_ns for rung in found.heaviest)
    assert ladder(trace, Diagnosis((ranked("layout-nchw", 500, 590),), None, ())).heaviest == ()
    report = diagnose(trace)
    assert report.findings == ()
    said = render(report_page(report), Look(width=100))
    assert "The step without each of its pieces" in said
    assert "aten::mm" in said
    assert "No finding is about these" in said


def test_words_and_order_agree_about_what_is_less_work():
    assert list(EFFORT) == [e.value for e in sorted(Effort, key=_weighed)]
    search = rung("slow-operator", 500, 700, "search")
    work = rung("launch-bound", 300, 600, "work")
    said = why_this_order(
        LadderInfo(base_ns=BASE, rungs=(search, work), best_single="launch-bound")
    )
    assert said.endswith("(1.00 → 0.30 µs), which takes more work.")
    lines = rung("sync-in-loop", 600, 650, "lines")
    said = why_this_order(LadderInfo(base_ns=BASE, rungs=(search, lines)))
    assert said.endswith("sync-in-loop is less work, yet less is expected of it.")
    once = msgspec.structs.replace(lines, once_a_step=True)
    said = why_this_order(LadderInfo(base_ns=BASE, rungs=(search, once), best_single=once.id))
    assert said.endswith("sync-in-loop is less work and wins the same time: it hides that work.")


def _weighed(effort):
    return effort.weight, effort is not Effort.SETTING


def rung(id_, step, high, effort):
    between, sure = (step // 2, high), BASE - high
    return RungInfo(
        id=id_,
        kind="finding",
        step_ns=step,
        range_ns=between,
        sure_ns=sure,
        base_ns=BASE,
        effort=effort,
    )


@pytest.mark.parametrize(
    ("step_then", "high_then", "first"),
    [
        (600, 990, "host-hotspot"),  # expected to win as much, and nothing is sure
        (600, 960, "sync-in-loop"),  # something is, and it may be why
        (700, 960, "sync-in-loop"),  # half of the place
        (820, 870, "sync-in-loop"),  # less, and surer
        (810, 960, "host-hotspot"),  # too little to be why, and less sure
        (500, 990, "sync-in-loop"),  # more is expected of it
    ],
)
def test_a_place_that_surely_wins_comes_before_a_known_fix_that_does_not(
    step_then, high_then, first
):
    place = ranked("host-hotspot", 590, 880)
    assert order(ranked("sync-in-loop", step_then, high_then), place)[0] == first


def test_a_known_fix_at_the_same_place_stays_before_it():
    at = Location(file="serve.py", line=20, function="forward")
    two = ranked("sync-in-loop", 600, 990), ranked("host-hotspot", 590, 880)
    here = [replace(r, finding=msgspec.structs.replace(r.finding, location=at)) for r in two]
    assert order(*here)[0] == "sync-in-loop"
