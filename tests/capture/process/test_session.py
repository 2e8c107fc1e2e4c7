"""The life of a session, driven by hand with a clock and a window that only count."""

import json
import sys
import threading
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest

from pinchpoint.capture.process import facts, loaders
from pinchpoint.capture.process.budget import Budget, CallCount
from pinchpoint.capture.process.ranks import Identity
from pinchpoint.capture.process.session import CaptureSession
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.process.step_clock import StepClock
from pinchpoint.capture.settings import BARE, BESIDE, UNSTACKED, Settings
from pinchpoint.capture.windows.launches import LaunchCost
from pinchpoint.capture.windows.recording import Recording, TraceFile, keep_best
from pinchpoint.run_folder.documents import ProcessDocument, WorkerDocument

MS = 1_000_000


class Clock:
    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


class CountingWindow:
    def __init__(self, kind="times"):
        self.calls, self.steps = [], -1

    def prime(self):
        self.calls.append("prime")

    def open(self):
        self.calls.append("open")

    def step(self):
        self.steps += 1

    def may_end(self, *, step_ended):
        return True

    def under_way(self):
        return False

    def close(self, *, step_ended=False):
        self.calls.append("close")
        steps = self.steps + step_ended
        return Recording(TraceFile("t.json.gz", 1, 0, 9), None, 0, 1, steps)


@pytest.fixture(autouse=True)
def _no_optimizer(monkeypatch):
    """Whatever other tests have made in this process."""
    monkeypatch.delitem(sys.modules, "torch.optim.optimizer", raising=False)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def session(tmp_path, clock):
    (tmp_path / "processes").mkdir()
    return make(tmp_path, clock)


def make(folder, clock, *, rank=0, world_size=1, **settings):
    saved = []
    session = CaptureSession(
        Settings(str(folder), **settings),
        Identity(rank, world_size, rank, "host", 1, world_size > 1),
        CountingWindow,
        saved.append,
    )
    session.clock, session.fetch_clock = StepClock(clock), StepClock(clock)
    session.saved = saved
    return session


def run(session, clock, *durations_ms):
    for duration in durations_ms:
        clock.now += int(duration * MS)
        session.step("optimizer")


def test_steady_steps_are_timed_recorded_and_timed_again(session, clock):
    run(session, clock, *[50, 30, 20], *[10] * 47)
    assert session.policy.steady
    assert [r.steps for r in session.recordings] == [6]
    assert session.stage is Stage.DONE
    before = [
        session.clock.interval_ns[i]
        for i in session.clock.undisturbed(2, session.timed.before.stop)
    ]
    after = [session.clock.interval_ns[i] for i in session.timed.after]
    assert set(before[1:]) == {10 * MS}
    assert after == [10 * MS] * 20
    assert session.saved


def test_a_window_is_ended_when_what_began_in_it_is_over(session, clock):
    asked = []

    class HeldOpen(CountingWindow):
        def may_end(self, *, step_ended):
            asked.append((step_ended, self.steps))
            return len(asked) == 3

    session._make_window = HeldOpen
    run(session, clock, *[10] * 60)
    assert asked[0] == (True, 5)
    assert [steps for _, steps in asked] == [5, 5, 5]  # nothing was recorded meanwhile
    assert session.stage is Stage.DONE
    assert [r.steps for r in session.recordings] == [6]


def test_a_window_that_is_ended_while_a_step_is_marked_in_it(session, clock):
    """The quiet watch may have the main thread end a long trial at any of its instructions."""

    class Ended(CountingWindow):
        def step(self):
            super().step()
            if self.steps == 2:
                session._close()

    session._make_window = Ended
    run(session, clock, *[10] * 60)
    assert session.problems == []
    assert [r.steps for r in session.recordings] == [2]


def test_names_follow_the_window_of_times_and_the_early_window_gives_way(tmp_path, clock):
    (tmp_path / "processes").mkdir()
    asked = []
    session = make(tmp_path, clock, names=True)
    session._make_window = lambda kind: asked.append(kind) or CountingWindow(kind)
    run(session, clock, *[50, 30, 20], *[10] * 57)
    assert asked == ["early", "times", "names"]
    assert [(r.window, r.steps) for r in session.recordings] == [("times", 6), ("names", 3)]
    assert session.stage is Stage.DONE
    after = [session.clock.interval_ns[i] for i in session.timed.after]
    assert after == [10 * MS] * 20


def test_steps_that_have_become_far_shorter_are_recorded_again_once(tmp_path, clock):
    """Shapes that came for the first time while it was recorded, and never did so again."""
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True, bounded=True)
    session._make_window = lambda kind: DearWindow(kind, clock, 100, tmp_path)
    session.budget.calls.count = 100
    run(session, clock, *[60] * 26, *[5] * 80, *[1] * 300)
    assert session.stage is Stage.DONE
    assert [(r.window, r.provisional) for r in session.recordings] == [
        ("times", False),
        ("names", False),
    ]
    recorded = session.timed.before.stop
    assert session.clock.interval_ns[recorded - 1] == 5 * MS  # the second one, and no third
    assert session.problems == []


@pytest.mark.parametrize("later_ms", [(5,), (4,), (1, 1, 3)])
def test_steps_that_stay_or_are_shorter_by_chance_are_recorded_once(tmp_path, clock, later_ms):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True, bounded=True)
    session._make_window = lambda kind: DearWindow(kind, clock, 100, tmp_path)
    session.budget.calls.count = 100
    run(session, clock, *[5] * 40, *later_ms * 60)
    assert session.stage is Stage.DONE
    assert session.timed.before.stop < 40


class Launches(LaunchCost):
    """Which ends of which intervals launches were timed at; each time 3 ms on the clock."""

    def __init__(self, session, clock):
        super().__init__()
        self._session, self._clock, self.at = session, clock, []

    def _begin(self, window, intervals):
        self.before_ns, self.loaded_since, self.why = 8, intervals, None
        self._take("before")

    def _end(self):
        self.after_ns = 14
        self._take("after")

    def _take(self, what):
        self._clock.now += 3 * MS
        self.at.append((what, len(self._session.clock.interval_ns)))


def test_launches_are_timed_before_the_first_window_and_after_those_with_all_their_steps(
    tmp_path, clock
):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True)
    session.launches = launches = Launches(session, clock)
    run(session, clock, *[10] * 60)
    assert [what for what, _ in launches.at] == ["before", "after", "after", "after"]
    assert session.budget.stalled_ns > 0
    for _, interval in launches.at:  # no step that was timed has them
        assert interval in session.clock.disturbed
    after = [session.clock.interval_ns[i] for i in session.timed.after]
    assert after == [10 * MS] * 20
    steps = facts._steps(session)
    first = launches.at[0][1]
    timed = session.clock.undisturbed(session.timed.before.start, session.timed.before.stop)
    assert steps["launch_ns"] == {
        "before": 8,
        "after": 14,
        "why": None,
        "unloaded_steps": len([row for row in timed if row < first]),
    }


def test_a_program_that_ends_within_a_window_is_not_held_up_by_launches(tmp_path, clock):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock)
    session.launches = launches = Launches(session, clock)
    run(session, clock, *[10] * 16)
    session.finish()
    assert [what for what, _ in launches.at] == ["before"]
    assert facts._steps(session)["launch_ns"]["why"] == "no recording ended with a step"


class DearWindow(CountingWindow):
    """A step of it holds so many operators; each takes the program 10 µs, with names 25."""

    def __init__(self, kind, clock, operators, folder):
        super().__init__(kind)
        self.kind, self.clock, self.operators, self.folder = kind, clock, operators, folder

    def close(self, *, step_ended=False):
        steps = self.steps + step_ended
        events = steps * self.operators
        self.clock.now += events * (10_000 if self.kind in BARE else 25_000)
        name = f"{self.kind}.json.gz"
        folder = self.folder / ("names" if self.kind in BESIDE else "traces")
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("")
        stacks = self.kind not in UNSTACKED
        file = TraceFile(name, 17 * events, 0, events)
        return Recording(file, None, 0, 1, steps, stacks=stacks)


@pytest.mark.parametrize(
    ("operators", "calls", "windows"),
    [
        (1_000, 1_000, "trial:1 early:3 times:6 names:3"),
        (50_000, 1_000, "trial:1 early:1 times:5 names:2"),  # half a second a step, 1.3 with names
        (50_000, 150_000, "trial:1 times:5 names:1"),  # 2 s a step with names and stacks
        (150_000, 1_000, "trial:1 times:1 names:1"),
        (250_000, 1_000, "trial:1 times:1"),  # 2.5 s a step, and 6.3 with names
        (450_000, 1_000, "trial:1"),  # has taken more than half of all
    ],
)
def test_windows_have_as_many_steps_as_recording_may_cost(
    tmp_path, clock, operators, calls, windows
):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True, bounded=True, whole_round=True)
    made = []

    def make_window(kind):
        made.append(DearWindow(kind, clock, operators, tmp_path))
        return made[-1]

    session._make_window = make_window
    session.budget.calls.count = calls
    run(session, clock, *[50, 30, 20], *[10] * 60)
    assert " ".join(f"{w.kind}:{w.steps + 1}" for w in made) == windows
    assert session.budget.spent_ns <= 7_000_000_000
    assert session.stage is Stage.DONE
    assert ("--stacks" in " ".join(session.problems)) == ("names" not in windows)


@pytest.mark.parametrize(("operators", "told"), [(1_000, 0), (260_000, 1)])
def test_a_program_of_four_steps_is_told_that_names_cost_too_much(tmp_path, clock, operators, told):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True, bounded=True, whole_round=True)
    session._make_window = lambda kind: DearWindow(kind, clock, operators, tmp_path)
    session.budget.calls.count = 1_000
    run(session, clock, 500, 300, 300, 300)
    session.finish()
    assert [r.window for r in session.recordings] == ["early"]
    assert " ".join(session.problems).count("run --stacks --shapes --steps 1") == told


@pytest.mark.parametrize(
    ("operators", "windows", "kept"),
    [
        (200, "trial:0 trial:0 early:3", ("early", 3)),  # the trial goes on in another file
        (90_000, "trial:0", ("early", 1)),  # a second and a half were nearly written
    ],
)
def test_a_long_step_is_tried_in_part(tmp_path, clock, monkeypatch, operators, windows, kept):
    (tmp_path / "processes").mkdir()
    monkeypatch.setattr("pinchpoint.capture.process.starting_over.TorchWindow", DearWindow)
    session = make(tmp_path, clock, names=True, bounded=True, whole_round=True)
    made = []

    def make_window(kind):
        made.append(DearWindow(kind, clock, operators, tmp_path))
        return made[-1]

    session._make_window = make_window
    session.budget.calls.count = 1_000
    run(session, clock, 3000)
    assert not session.trial_is_long()
    clock.now += 300 * MS
    assert session.trial_is_long()
    made[0].steps = 1  # holds as much as a step, of which it is a tenth
    session.bound_trial()
    made[0].steps = 0
    run(session, clock, 2700, *[3000] * 4)
    session.finish()
    assert " ".join(f"{w.kind}:{w.steps + (w.kind == 'early')}" for w in made) == windows
    assert [(r.window, r.steps) for r in session.recordings] == [kept]
    assert session.budget.spent_ns < 2_000_000_000


@pytest.mark.parametrize("follow", [False, True])
def test_early_names_are_kept_until_others_come(tmp_path, follow):
    for part in ("traces", "names"):
        (tmp_path / part).mkdir()
    for name in ("traces/early.gz", "traces/times.gz", "names/names.gz"):
        (tmp_path / name).write_text("")
    early, times, names = (
        Recording(TraceFile(f"{kind}.gz", 1, 0, 9), None, 0, 1, 1, kind, kind != "times")
        for kind in ("early", "times", "names")
    )
    kept = [early]
    assert keep_best(kept, times, whole=True, folder=tmp_path, names_follow=follow)
    assert [(r.window, r.file.name) for r in kept] == [("times", "times.gz"), ("names", "early.gz")]
    assert (tmp_path / "names" / "early.gz").exists()
    if follow:
        assert keep_best(kept, names, whole=True, folder=tmp_path)
        assert [r.file.name for r in kept] == ["times.gz", "names.gz"]
        assert [p.name for p in (tmp_path / "names").iterdir()] == ["names.gz"]


def test_calls_are_counted_in_one_step_without_disturbing_other_profilers():
    def called():
        pass

    count = CallCount()
    count.begin()
    for _ in range(1000):
        called()
    count.end()
    assert 1000 <= count.count < 1020
    assert sys.getprofile() is None


@pytest.mark.parametrize(("wait", "warmup"), [(0, 1), (3, 1), (3, 2)])
def test_cycles_record_exactly_the_steps_that_were_asked_for(tmp_path, clock, wait, warmup):
    (tmp_path / "processes").mkdir()
    asked = {"skip_first": 5, "wait": wait, "warmup": warmup, "steps": 4, "repeat": 2}
    session = make(tmp_path, clock, **asked)
    recorded = []
    for number in range(60):
        run(session, clock, 10)
        if session.window is not None and session.window.steps >= 0:
            recorded.append(number + 1)  # the step that now begins is recorded
    first = 5 + wait + warmup
    cycle = wait + warmup + 4
    wanted = [*range(first, first + 4), *range(first + cycle, first + cycle + 4)]
    assert recorded == wanted
    assert [r.steps for r in session.recordings] == [4, 4]
    assert session.stage is Stage.DONE


class Foreseen:
    most_steps, keeps = None, True

    def __init__(self, kind):
        self.kind = kind

    def due(self, clock):
        return self.kind if len(clock.interval_ns) == 80 else None

    def caught(self, clock, recorded):
        return False


@pytest.mark.parametrize("kind", ["rare", "late"])
def test_a_step_that_is_foreseen_is_recorded_with_names(tmp_path, clock, kind):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True)
    asked = []
    session._make_window = lambda kind: asked.append(kind) or CountingWindow(kind)
    run(session, clock, *[10] * 70)
    session.foresight = Foreseen(kind)
    run(session, clock, *[10] * 30)
    assert asked == ["early", "times", "names", kind]
    assert [(r.window, r.steps) for r in session.recordings][-1] == (kind, 3)
    assert session.clock.disturbed >= {80, 81, 82, 83}  # one warms up, three are recorded
    assert session.stage is Stage.DONE


def test_marks_of_the_program_are_its_steps_whatever_else_marks_them(session, clock):
    run(session, clock, 10)
    for _ in range(3):
        clock.now += 10 * MS
        session.step("call")
    run(session, clock, 10)
    assert session.steps_by == "call"
    assert session.clock.edges == 3


@pytest.mark.parametrize(("steps", "recorded"), [(2, 1), (4, 3), (9, 3)])
def test_a_short_program_is_recorded_from_its_second_step(tmp_path, clock, steps, recorded):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True)
    run(session, clock, *[10] * steps)
    session.finish()
    (recording,) = session.recordings
    assert recording.window == "early"
    # The last step of a program that ends in its window has no end of its own.
    assert recording.steps in (recorded, recorded - 1)
    assert not session.problems


def call(session, clock, model, times, every_ms=10):
    for _ in range(times):
        clock.now += every_ms * MS
        session.model_called(model)


def model(parameters=1):
    return SimpleNamespace(parameters=lambda: iter(range(parameters)))


def test_calls_of_a_model_are_the_steps_of_a_program_that_does_not_train(session, clock):
    head, loss = model(), model(parameters=0)
    for _ in range(60):
        call(session, clock, head, 1)
        call(session, clock, loss, 1, 1)
    assert (session.steps_by, session.clock.edges) == ("module", 60)
    assert [r.steps for r in session.recordings] == [6]
    assert session.clock.interval_ns[40] == 11 * MS


def test_a_program_that_trains_after_all_is_divided_by_its_optimizer(session, clock):
    call(session, clock, model(), 3)
    run(session, clock, *[10] * 5)
    assert (session.steps_by, session.clock.edges) == ("optimizer", 5)


def replay(session, clock, times, *graphs, every_ms=10):
    for _ in range(times):
        clock.now += every_ms * MS
        for graph in graphs:
            session.graph_replayed(graph)


@pytest.mark.parametrize("warm_up", range(6))
def test_replays_of_graphs_are_steps_whatever_stage_calls_of_the_model_left(
    tmp_path, clock, warm_up
):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True, bounded=True)
    call(session, clock, model(), warm_up)
    graphs = [object() for _ in range(12)]
    replay(session, clock, 70, *graphs)
    first = 1 + 7 * bool(warm_up)  # one begins, and what came before is given up after eight
    assert (session.steps_by, session.clock.edges) == ("graph", 70 - first)
    windows = [(r.window, r.steps) for r in session.recordings]
    assert windows == [("times", 6), ("names", 3)]
    assert (session.stage, session.problems) == (Stage.DONE, [])


def test_a_dozen_replays_after_a_warm_up_leave_their_early_window(tmp_path, clock):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True, bounded=True)
    call(session, clock, model(), 3)
    replay(session, clock, 12, object())
    session.finish()
    assert session.steps_by == "graph"
    assert [(r.window, r.steps) for r in session.recordings] == [("early", 1)]


def test_a_window_ends_where_the_steps_that_it_was_opened_for_stop(tmp_path, clock):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True)
    call(session, clock, model(), 4)
    assert session.stage is Stage.RECORDING
    session.abandon()
    assert (session.window, session.stage) == (None, Stage.WAITING)
    assert [(r.window, r.steps) for r in session.recordings] == [("early", 2)]


def test_training_that_comes_after_what_was_recorded_is_recorded(tmp_path, clock):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True)
    call(session, clock, model(), 60)
    assert session.stage is Stage.DONE
    run(session, clock, 10, 10)  # an update now and then is no training
    assert session.steps_by == "module"
    run(session, clock, 2000, *[100] * 40)
    assert (session.steps_by, session.clock.edges) == ("optimizer", 41)
    assert [(r.window, r.steps) for r in session.recordings] == [("times", 6), ("names", 3)]


@pytest.mark.parametrize(("captured", "by"), [(True, "graph"), (False, "optimizer")])
def test_an_optimizer_is_waited_for_unless_a_graph_holds_its_steps(
    tmp_path, clock, monkeypatch, captured, by
):
    (tmp_path / "processes").mkdir()
    monkeypatch.setattr("pinchpoint.capture.process.session.optimizer_exists", lambda: True)
    session = make(tmp_path, clock, names=True)
    run(session, clock, *[10] * 3)
    if captured:
        session.step_captured()
    replay(session, clock, 100, object())
    assert session.steps_by == by
    replay(session, clock, 1, object(), every_ms=11_000)
    replay(session, clock, 20, object())
    assert session.steps_by == "graph"


def test_replays_within_steps_of_an_optimizer_are_none(session, clock):
    graph = object()
    replay(session, clock, 8, graph)
    assert session.steps_by == "graph"
    for _ in range(40):
        replay(session, clock, 12, graph)
        run(session, clock, 1)
    assert session.steps_by == "optimizer"
    assert session.clock.interval_ns[-1] == 121 * MS


def test_calls_from_several_threads_mark_nothing(session, clock):
    call(session, clock, model(), 3)
    other = threading.Thread(target=call, args=(session, clock, model(), 1))
    other.start()
    other.join()
    call(session, clock, model(), 3)
    assert (session.steps_by, session.clock.edges) == (None, 0)


def test_a_recording_that_grows_between_two_steps_is_ended(tmp_path, clock, monkeypatch):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, names=True)
    run(session, clock, 10)
    assert session.stage is Stage.RECORDING
    held = session._resident_at_open + session.settings.max_bytes
    monkeypatch.setattr("pinchpoint.capture.process.stages.resident_bytes", lambda: held + 1)
    clock.now += 1000 * MS
    session.model_called(model())
    assert session.stage is not Stage.RECORDING
    assert not session.problems


def test_what_recording_cost_is_what_disturbed_steps_took_beyond_ordinary_ones(clock):
    steps = StepClock(clock)
    for duration, disturbed in ((10, False), (10, False), (10, False), (60, True), (10, False)):
        clock.now += duration * MS
        if disturbed:
            steps.disturb()
        steps.edge()
    assert steps.cost_ns() == 50 * MS


def test_steps_that_get_faster_are_not_recorded_yet(session, clock):
    run(session, clock, *[100 / 1.2**i for i in range(40)])
    assert session.stage is Stage.WAITING


def test_impatience_records_unsteady_steps_and_says_so(session, clock):
    run(session, clock, *[1000 * 0.97**i for i in range(230)])
    assert session.policy.steady is False
    assert session.recordings


def test_a_fixed_number_of_steps_needs_no_steady_state(tmp_path, clock):
    session = make(tmp_path, clock, after_steps=3, steps=2)
    run(session, clock, *[100 / 1.2**i for i in range(12)])
    assert [r.steps for r in session.recordings] == [2]


def test_stalls_of_our_own_are_in_no_figure(session, clock):
    run(session, clock, *[10] * 13)
    assert session.stage is Stage.DRAINING
    run(session, clock, 2000, *[10] * 60)
    ordinary = {session.clock.interval_ns[i] for i in session.clock.undisturbed(1)}
    assert ordinary == {10 * MS}


class Workers:
    _num_workers, _prefetch_factor = 4, 2


@pytest.mark.parametrize(
    ("stall_ms", "drained"),
    [
        pytest.param(2000, 9, id="a long stall fills the queue"),
        pytest.param(35, 5, id="a short one gives time for some batches"),
        pytest.param(0, 2, id="none"),
    ],
)
def test_what_a_stall_put_into_a_loaders_queue_is_used_up_before_recording(
    tmp_path, clock, stall_ms, drained
):
    class Stalling(CountingWindow):
        def prime(self):
            clock.now += stall_ms * MS

    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock)
    session._make_window = Stalling
    session.fetched(0, 1, Workers())
    run(session, clock, *[10] * 13)
    run(session, clock, *[10] * (drained - 1))
    assert session.stage is Stage.DRAINING
    run(session, clock, 10)
    assert session.stage is Stage.RECORDING


@pytest.mark.parametrize(
    ("workers", "whole_round", "steps"),
    [(12, True, 12), (4, True, 6), (40, True, 32), (12, False, 6)],
)
def test_a_round_of_workers_is_recorded_unless_a_number_was_given(
    tmp_path, clock, workers, whole_round, steps
):
    class Iterator:
        _num_workers, _prefetch_factor = workers, 2

    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, whole_round=whole_round)
    session.fetched(0, 1, Iterator())
    run(session, clock, *[10] * 120)
    assert [r.steps for r in session.recordings] == [steps]


@pytest.mark.parametrize(("batches", "steps"), [(10, 11), (100, 6)])
def test_a_short_epoch_is_recorded_whole(tmp_path, clock, batches, steps):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, whole_round=True)
    for batch in range(220):
        if batch % batches == 0:
            session.iterator_built(MS)
        session.fetched(0, 1, object())
        run(session, clock, 10)
    assert [r.steps for r in session.recordings] == [steps]


def test_batches_without_optimizer_steps_are_the_steps(session, clock):
    for _ in range(40):
        clock.now += 300 * MS
        session.fetched(clock.now - 20 * MS, clock.now, object())
    assert session.steps_by == "loader"
    assert session.recordings
    assert set(session.clock.wait_ns[1:]) == {20 * MS}


def test_waits_belong_to_the_step_they_delay(session, clock):
    run(session, clock, 10)
    session.fetched(0, 4 * MS, object())
    run(session, clock, 10, 10)
    assert session.clock.wait_ns.tolist() == [4 * MS, 0]


def test_one_of_several_optimizers_marks_the_steps(session, clock):
    first, second = object(), object()
    for _ in range(6):
        clock.now += MS
        session.optimizer_stepped(first)
        session.optimizer_stepped(second)
    assert session.clock.edges == 6


def test_an_optimizer_that_stops_stepping_is_replaced(session, clock):
    first, second = object(), object()
    session.optimizer_stepped(first)
    for _ in range(20):
        session.optimizer_stepped(second)
    assert session.clock.edges > 10


def test_ending_in_the_middle_keeps_the_recording(session, clock):
    run(session, clock, *[10] * 18)
    assert session.stage is Stage.RECORDING
    session.finish()
    assert len(session.recordings) == 1
    assert session.saved


def test_another_profiler_ends_ours(session, clock):
    run(session, clock, *[10] * 18)
    session.yield_to_other_profiler("somebody else records")
    assert len(session.recordings) == 1
    assert session.problems == ["somebody else records"]
    run(session, clock, *[10] * 60)
    assert len(session.recordings) == 1


def test_a_forked_copy_does_nothing(session, clock):
    run(session, clock, *[10] * 18)
    session.forget_in_fork()
    run(session, clock, *[10] * 60)
    assert session.recordings == []


def test_a_window_that_breaks_never_reaches_the_program(session, clock):
    session._make_window = lambda kind: (_ for _ in ()).throw(RuntimeError("CUPTI is busy"))
    run(session, clock, *[10] * 40)
    assert session.problems == ["RuntimeError: CUPTI is busy"]


def test_ranks_agree_on_the_steps_to_record(tmp_path, clock):
    (tmp_path / "processes").mkdir()
    first = make(tmp_path, clock, rank=0, world_size=2)
    second = make(tmp_path, clock, rank=1, world_size=2)
    opened = {}
    for edge in range(60):
        for name, session, noise in (("first", first, 1), ("second", second, 1 + edge % 3)):
            clock.now += 10 * MS * noise
            session.step("optimizer")
            if session.stage is Stage.RECORDING:
                opened.setdefault(name, edge)
    assert opened["first"] == opened["second"]


@pytest.mark.parametrize(
    ("calls", "windows"),
    [
        ((1_000, 1_000), ("trial:1 first:3 names:3", "trial:1 first:3 names:3")),
        # Stacks of the second cost more than the first steps may.
        ((1_000, 100_000), ("trial:1 first:3 names:3", "trial:1 first:3")),
    ],
)
def test_ranks_that_end_early_have_recorded_the_same_bare_steps(tmp_path, clock, calls, windows):
    (tmp_path / "processes").mkdir()
    ranks, made, opened = [], ([], []), ([], [])
    for rank in (0, 1):
        folder = tmp_path / str(rank)
        folder.mkdir()
        one = make(tmp_path, clock, rank=rank, world_size=2, names=True, bounded=True)
        one.budget.calls.count = calls[rank]

        def make_window(kind, rank=rank, folder=folder):
            made[rank].append(DearWindow(kind, clock, 1_000, folder))
            return made[rank][-1]

        one._make_window = make_window
        ranks.append(one)
    for edge in range(10):
        for rank, session in enumerate(ranks):
            clock.now += 300 * MS
            session.step("optimizer")
            if session.stage is Stage.RECORDING and session._kind == "first":
                opened[rank].append(edge)
    for rank, session in enumerate(ranks):
        session.finish()
        assert " ".join(f"{w.kind}:{w.steps + 1}" for w in made[rank]) == windows[rank]
        kept = {r.window: r.steps for r in session.recordings}
        assert kept == dict.fromkeys(("early", *["names"] * ("names" in windows[rank])), 3)
        assert (tmp_path / str(rank) / "traces" / "first.json.gz").exists()
        assert session.timed.before.stop > session.timed.before.start
    assert opened[0] == opened[1] == [2, 3, 4]


def test_steady_steps_of_ranks_take_the_place_of_the_first(tmp_path, clock):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, world_size=2, names=True, bounded=True, whole_round=True)
    session._make_window = lambda kind: DearWindow(kind, clock, 1_000, tmp_path)
    session.budget.calls.count = 1_000
    run(session, clock, *[50, 30, 20], *[10] * 60)
    assert [(r.window, r.steps) for r in session.recordings] == [("times", 6), ("names", 3)]
    assert [p.name for p in (tmp_path / "traces").iterdir()] == ["times.json.gz"]


def test_ranks_that_were_not_chosen_have_no_first_steps_either(tmp_path, clock):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, rank=1, world_size=2, ranks="0", names=True, bounded=True)
    run(session, clock, *[300] * 10)
    assert session.recordings == []


def test_ranks_agree_on_a_request_as_well(tmp_path, clock, monkeypatch):
    for module in ("settings", "process.ranks"):
        monkeypatch.setattr(f"pinchpoint.capture.{module}.REQUEST_EVERY_NS", 0)
    (tmp_path / "processes").mkdir()
    ranks = [make(tmp_path, clock, rank=rank, world_size=2) for rank in (0, 1)]
    opened = []
    for edge in range(160):
        if edge == 80:
            (tmp_path / "capture.request").write_text("")
        for session in ranks:
            clock.now += 10 * MS
            session.step("optimizer")
        opened.append([session.stage is Stage.RECORDING for session in ranks])
    assert [len(session.recordings) for session in ranks] == [2, 2]
    assert all(first == second for first, second in opened)


def test_ranks_that_were_not_chosen_are_timed_only(tmp_path, clock):
    (tmp_path / "processes").mkdir()
    session = make(tmp_path, clock, rank=1, world_size=2, ranks="0", after_steps=3)
    (tmp_path / "processes/open-at-step.txt").write_text("12")
    run(session, clock, *[10] * 60)
    assert session.recordings == []
    assert len(session.timed.after) == 20


def test_a_request_asks_for_one_more_recording(session, clock, tmp_path, monkeypatch):
    for module in ("settings", "process.ranks"):
        monkeypatch.setattr(f"pinchpoint.capture.{module}.REQUEST_EVERY_NS", 0)
    run(session, clock, *[10] * 60)
    (tmp_path / "capture.request").write_text("")
    run(session, clock, *[10] * 60)
    assert len(session.recordings) == 2


def _told_of_lines(*_):
    """As a debugger is."""


def test_the_note_of_a_process_has_the_shape_that_is_read(session, clock):
    """The hooks write plain JSON; what they write and what is declared may not drift apart."""
    before = sys.gettrace()
    sys.settrace(_told_of_lines)
    try:
        run(session, clock, *[50, 30, 20], *[10] * 47)
    finally:
        sys.settrace(before)
    known = {}
    loaders.count_iterator(known, 5, SimpleNamespace(num_workers=2, batch_size=8))
    written = json.loads(json.dumps(facts.facts(session, list(known.values()))))
    found = msgspec.convert(written, ProcessDocument, strict=True)
    read_again = msgspec.to_builtins(found)
    switches = written.pop("switches")
    assert found.line_tracer == f"{__name__}._told_of_lines"
    assert found.switches.torch_num_threads == switches["torch_num_threads"]
    read_again.pop("switches")
    assert json.loads(json.dumps(read_again)) == written


def test_the_note_of_a_worker_has_the_shape_that_is_read(tmp_path, monkeypatch):
    worker = SimpleNamespace(id=1, num_workers=4)
    data = SimpleNamespace(get_worker_info=lambda: worker)
    torch = SimpleNamespace(get_num_threads=lambda: 1, utils=SimpleNamespace(data=data))
    for name, module in (
        ("torch", torch),
        ("torch.utils", torch.utils),
        ("torch.utils.data", data),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    notes = loaders.WorkerNotes(tmp_path, collate=partial(_collate, 3))
    notes.stream.note = {"samples": 8, "calls": (("data.py", 3, "unpack", 16),)}
    written = notes._document(notes._first_ns + 5)
    assert msgspec.to_builtins(msgspec.convert(written, WorkerDocument)) == written
    assert (written["batch_bytes"], written["read_bytes"] >= 0) == (0, True)
    assert written["collate"][1:] == (_collate.__code__.co_firstlineno, "_collate")


def test_what_a_batch_holds():
    tensor, text = SimpleNamespace(nbytes=400), "four"
    assert loaders.bytes_of([tensor, {"text": text, "n": 3}, (tensor, None)]) == 804
    assert loaders.bytes_of([tensor, object()]) is None  # which may hold anything
    assert loaders.bytes_of([tensor] * (loaders.MOST_VALUES + 1)) is None


def _collate(rows, samples):
    return samples[:rows]


@pytest.mark.parametrize(("waited", "steps"), [(1.0, 2), (14.0, 1)])
def test_fewer_steps_have_names_where_the_program_hardly_gets_a_core(waited, steps):
    budget = Budget(Settings("", bounded=True))
    closed = Recording(TraceFile("t", 17, 0, 1), None, 0, 1, 1, "early")
    budget.closed(closed, 0, 1)
    budget.calls.count, budget.calls.waited_ratio = 60_000, waited  # 40 µs each on a busy machine
    assert budget.plan("names", 3) == (steps, "names")


def turn(session, clock, times, every_ms=10):
    for _ in range(times):
        clock.now += every_ms * MS
        session._loop_turned()


def test_turns_of_a_loop_are_the_steps_of_a_program_that_has_no_others(session, clock):
    turn(session, clock, 60)
    assert (session.steps_by, session.clock.edges) == ("loop", 60)
    assert [r.steps for r in session.recordings] == [6]


@pytest.mark.parametrize(
    ("mark", "by"),
    [
        (lambda session: session.optimizer_stepped(1), "optimizer"),
        (lambda session: session.step("call"), "call"),
        (lambda session, one=model(): session.model_called(one), "module"),  # noqa: B008
    ],
    ids=["optimizer", "call", "module"],
)
def test_whatever_marks_steps_wins_of_a_loop(session, clock, mark, by):
    turn(session, clock, 8)
    for _ in range(5):
        clock.now += 10 * MS
        mark(session)
        session._loop_turned()
    assert (session.steps_by, session.clock.edges) == (by, 5)
    assert not session.loops.learns


def test_a_model_that_is_called_for_long_after_a_loop_has_the_steps(session, clock):
    """The loop of a second and a half prepared what the model is called with."""
    turn(session, clock, 150)
    assert session.steady_recorded
    call(session, clock, model(), 150)
    assert session.steps_by == "loop"
    call(session, clock, model(), 150)
    assert session.steps_by == "module"


def test_a_model_that_is_called_at_the_end_has_not(session, clock):
    turn(session, clock, 1000)
    call(session, clock, model(), 300)
    assert (session.steps_by, session.clock.edges) == ("loop", 1000)


@pytest.mark.parametrize(("rounds", "anew"), [(8, 0), (60, 1)])
def test_another_loop_begins_anew(session, clock, rounds, anew):
    """Its values are looked at, too, where those of the first one were recorded."""
    looks = []
    session.look_anew = lambda: looks.append(True)
    turn(session, clock, rounds)
    session.loops.changed = True
    turn(session, clock, 5)
    assert (session.clock.edges, len(looks)) == (5, anew)
    assert {r.window for r in session.recordings} <= {"early"}


@pytest.mark.parametrize(("steps", "timed"), [(0, False), (6, True)])
def test_rounds_are_no_times_of_what_was_recorded_by_time(session, clock, steps, timed):
    """In which something else may repeat."""
    turn(session, clock, 30)
    session.recordings = [Recording(TraceFile("t.json.gz", 1, 0, 9), None, 0, 1, steps)]
    session.timed.before, session.timed.after = range(2, 20), range(0)
    noted = facts.facts(session, [])["steps"]
    assert bool(noted["before_ns"]) == timed
    assert noted["count"] == 30


@pytest.mark.parametrize(("calls", "by"), [(3, "loop"), (40, "module")])
def test_a_model_that_was_called_a_few_times_before_the_loop_marks_nothing(
    session, clock, monkeypatch, calls, by
):
    monkeypatch.setattr("pinchpoint.capture.process.session.stopped", lambda clock, least_s: True)
    call(session, clock, model(), calls)
    turn(session, clock, 30)
    assert session.steps_by == by
    assert session.clock.edges == (30 if by == "loop" else calls)
