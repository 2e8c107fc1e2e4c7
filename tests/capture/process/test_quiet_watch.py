"""The watch over programs without steps, on windows that only say what they would have seen."""

import os
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

from pinchpoint.capture.process import policy, quiet_watch
from pinchpoint.capture.process.quiet_watch import QuietWatch
from pinchpoint.capture.process.ranks import Identity
from pinchpoint.capture.process.session import CaptureSession
from pinchpoint.capture.process.stage import Stage
from pinchpoint.capture.settings import Settings
from pinchpoint.capture.windows import threads
from pinchpoint.capture.windows.recording import Recording, TraceFile, remove_file
from pinchpoint.capture.windows.threads import in_main_thread

WORK = (500, 900)  # kernels, operators


@pytest.fixture
def watch(tmp_path, monkeypatch):
    """Gives a watch whose recordings hold these kernels and operators, one after another."""
    for part in ("traces", "names"):
        (tmp_path / part).mkdir()
    for name in ("LOOK_EVERY_S", "BEGINS_WITHIN_S", "LOOK_AGAIN_S", "REQUEST_EVERY_S"):
        monkeypatch.setattr(quiet_watch, name, 0.0)
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True))
    )
    monkeypatch.setattr(QuietWatch, "_work_began", lambda self: 0.0)
    made = []

    def make(*contents, after_s=None, end=True, **settings):
        session = CaptureSession(
            Settings(str(tmp_path), seconds=0.0, after_s=after_s, **settings),
            Identity(0, 1, 0, "host", 1, False),
            lambda: None,
            lambda session: None,
        )
        watch = QuietWatch(session)
        left = list(contents)

        def new_window(asked, folder, *args, **kwargs):
            window = Window(folder, len(made), *left.pop(0))
            made.append(window)
            if not left and end:
                watch._end.set()
            return window

        monkeypatch.setattr(quiet_watch, "new_window", new_window)
        if not end:
            monkeypatch.setattr(watch, "_answer_requests", lambda: None)
        watch._run()
        return session

    make.made, make.folder = made, tmp_path / "traces"
    return make


class Window:
    def __init__(self, folder, number, kernels, operators, during=lambda: None):
        self.name = f"{number}.json.gz"
        (folder / self.name).write_text("")
        self.counts, self.during, self.steps = (kernels, operators), during, -1

    def prime(self):
        pass

    def open(self):
        self.during()

    def step(self):
        pass

    def may_end(self, *, step_ended):
        return True

    def close(self):
        return Recording(TraceFile(self.name, 1, *self.counts), None, 0, 1, 0)


def kept(watch):
    return sorted(path.name for path in watch.folder.iterdir())


def test_a_recording_without_kernels_is_made_again(watch):
    session = watch((0, 900), (0, 10), WORK)
    assert kept(watch) == ["2.json.gz"]
    assert [r.file.kernels for r in session.recordings] == [500]
    assert (session.stage, session.problems) == (Stage.DONE, [])


def test_the_last_try_is_kept_so_that_the_cause_can_be_told(watch):
    session = watch(*[(0, 900)] * quiet_watch.TRIES)
    assert [r.file.kernels for r in session.recordings] == [0]


def test_a_program_that_ends_after_recordings_without_kernels_is_told_so(watch):
    session = watch((0, 900))
    assert kept(watch) == []
    assert "no kernel ran" in session.problems[0]
    assert "--after-seconds" in session.problems[0]


def test_what_was_recorded_is_recorded_again_for_names(watch, monkeypatch):
    ends = []
    monkeypatch.setattr(QuietWatch, "_record_early", lambda self, began: ends.append(began))
    monkeypatch.setattr(QuietWatch, "_wait_while_it_fits", lambda self, *seconds: None)
    session = watch(WORK, WORK, names=True, end=False)
    assert [r.window for r in session.recordings] == ["times", "names"]
    assert [p.name for p in (watch.folder.parent / "names").iterdir()] == ["1.json.gz"]


@pytest.fixture
def patient(monkeypatch):
    """The recording proper is not due before the program ends."""
    monkeypatch.setattr(quiet_watch, "FIRST_AFTER_S", 1e9)
    monkeypatch.setattr(quiet_watch, "optimizer_exists", lambda: False)


def test_a_program_that_ends_early_has_its_early_recording(watch, patient):
    session = watch(WORK, names=True)
    assert [r.window for r in session.recordings] == ["early"]
    assert kept(watch) == ["0.json.gz"]
    assert session.stage is Stage.WAITING


def test_an_early_recording_without_kernels_is_not_kept(watch, patient):
    assert watch((0, 900), names=True).recordings == []
    assert kept(watch) == []


def test_the_last_try_of_a_process_that_ran_no_operator_is_not_kept(watch):
    session = watch(*[(0, 0)] * quiet_watch.TRIES)
    assert session.recordings == []
    assert not list(watch.folder.iterdir())


def test_an_idle_process_is_left_in_silence(watch):
    assert watch((0, 10)).problems == []


@pytest.fixture
def compile_count(monkeypatch):
    count = [0]
    monkeypatch.setattr(policy, "compile_count", lambda: count[0])
    return count


def test_what_was_recorded_while_something_was_compiled_is_dropped(watch, compile_count):
    def compile_more():
        compile_count[0] += 1

    watch((*WORK, compile_more), WORK)
    assert kept(watch) == ["1.json.gz"]


@pytest.mark.parametrize("ends", [False, True])
def test_what_compiles_and_compiles_is_recorded_until_something_better_is(watch, monkeypatch, ends):
    monkeypatch.setattr(quiet_watch, "COMPILES_ON_S", 0.0)
    looks = iter([True] * 3)
    monkeypatch.setattr(policy.CompileWatch, "busy", lambda _: not ends or next(looks, False))
    session = watch(*[WORK] * (1 + ends))
    assert [r.window for r in session.recordings] == (["times"] if ends else ["early"])
    assert kept(watch) == (["1.json.gz"] if ends else ["0.json.gz"])


def test_a_program_that_does_nothing_but_compile_is_told_so(watch, monkeypatch):
    monkeypatch.setattr(quiet_watch, "COMPILES_ON_S", 0.0)
    monkeypatch.setattr(policy.CompileWatch, "busy", lambda _: True)
    session = watch((0, 3))
    assert (session.recordings, kept(watch)) == ([], [])
    (problem,) = session.problems
    assert "something was compiled, and nothing else done" in problem


def test_a_given_time_is_kept_to_whatever_is_compiled(watch, compile_count):
    def compile_more():
        compile_count[0] += 1

    watch((*WORK, compile_more), after_s=0.0)
    assert kept(watch) == ["0.json.gz"]


def test_steps_that_go_on_are_not_disturbed_and_steps_that_stopped_are_forgotten(watch):
    quiet = QuietWatch(watch(WORK))
    clock = quiet._session.clock
    assert not quiet._steps_come()
    now = [0]
    clock._clock_ns = lambda: now[0]
    for _ in range(3):
        now[0] += 10**9
        clock.edge()
    assert quiet._steps_come()
    now[0] += 19 * 10**9  # twenty steps of a second are the limit
    assert quiet._steps_come()
    now[0] += 2 * 10**9
    assert not quiet._steps_come()


@pytest.mark.parametrize(
    ("file", "function", "expected"),
    [
        ("/x/torch/_dynamo/convert_frame.py", "_compile", True),
        ("/x/torch/_inductor/compile_fx.py", "_compile_fx_inner", True),
        ("/x/torch/_inductor/compile_fx.py", "run", False),  # graph replay at run time
        ("/x/torch/_dynamo/eval_frame.py", "compile_wrapper", False),
        ("/x/jax/_src/compiler.py", "backend_compile", True),
    ],
)
def test_compiling_is_told_from_running_compiled_code(file, function, expected, monkeypatch):
    def frame(file, function, back):
        code = SimpleNamespace(co_filename=file, co_name=function)
        return SimpleNamespace(f_code=code, f_lasti=0, f_back=back)

    outer = frame("train.py", "main", frame(file, function, None))
    monkeypatch.setattr(sys, "_current_frames", lambda: {1: outer})
    assert policy.compiles() is expected


def test_an_optimizer_is_seen_once_it_is_made(monkeypatch):
    class Optimizer:
        def step(self):
            pass

    class Special(Optimizer):
        def step(self):
            pass

    module = ModuleType("torch.optim.optimizer")
    module.Optimizer = Optimizer
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", module)
    assert not policy.optimizer_exists()
    Special.step.hooked = True
    assert policy.optimizer_exists()


def test_work_of_jax_has_begun_although_torch_is_imported_and_does_none(monkeypatch):
    cuda = SimpleNamespace(is_initialized=lambda: False, is_available=lambda: True)
    torch = SimpleNamespace(cuda=cuda, __spec__=None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    listens = []
    calls = SimpleNamespace(begin=lambda: listens.append(True))
    session = SimpleNamespace(settings=Settings("", launcher_pid=os.getppid()), calls=calls)
    begun = QuietWatch(session)._work_began
    for there in (False, True):
        bridge = SimpleNamespace(backends_are_initialized=lambda there=there: there)
        monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
        assert (begun() is not None) == there
        assert bool(listens) == there  # to the calls of what it compiled


def test_only_the_longer_of_two_jax_recordings_stays_whole(tmp_path):
    for second in ("0", "1"):
        (tmp_path / second).mkdir()
        for name in ("vm.xplane.pb", "vm.trace.json.gz"):
            (tmp_path / second / name).touch()
    remove_file(tmp_path / "0" / "vm.xplane.pb")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["1", "vm.trace.json.gz", "vm.xplane.pb"]


def ask_of_the_main_thread(monkeypatch, act):
    for elsewhere in ("graph_is_captured", "captures_under_way"):  # by what other tests left
        monkeypatch.setattr(threads, elsewhere, lambda: False)
    asked = threading.Thread(target=in_main_thread, args=(act,))
    asked.start()
    while asked.is_alive():
        pass
    asked.join()


def test_something_is_done_in_the_main_thread_between_two_of_its_instructions(monkeypatch):
    did = []
    ask_of_the_main_thread(monkeypatch, lambda: did.append(threading.current_thread()))
    assert did == [threading.main_thread()]


def test_what_the_program_raises_meanwhile_is_raised_in_the_program(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask_of_the_main_thread(monkeypatch, interrupted)
