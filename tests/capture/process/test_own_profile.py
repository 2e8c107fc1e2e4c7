"""A program that runs its own profiler, without one."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from pinchpoint.capture.process.own_profile import OwnProfile
from pinchpoint.capture.process.step_clock import StepClock
from pinchpoint.capture.windows.torch import OWN

TRACE = {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm"}]}


class Results:
    def save(self, path):
        Path(path).write_text(json.dumps(TRACE))


@pytest.fixture
def kind():
    """A class such as torch's."""

    class Profile:
        def prepare_trace(self):
            self.profiler = SimpleNamespace(kineto_results=Results())

        def stop_trace(self):
            return "stopped"

        def export_chrome_trace(self, path):
            self.profiler.kineto_results.save(path)

    return Profile


@pytest.fixture
def own(kind):
    watched = OwnProfile(StepClock)
    watched.watch(kind)
    return watched


def record(kind):
    profile = kind()
    profile.prepare_trace()
    assert profile.stop_trace() == "stopped"
    return profile


@pytest.mark.parametrize("exports", [True, False])
def test_the_programs_own_recording_is_taken_whether_it_writes_it_or_not(
    kind, own, tmp_path, exports
):
    profile = record(kind)
    if exports:
        profile.export_chrome_trace(str(tmp_path / "mine.json"))
    taken = own.recording(tmp_path, "rank0")
    assert taken.file.name == "rank0.trace.json.gz"
    assert taken.file.operators == 1
    assert (tmp_path / "mine.json").exists() == exports
    assert own.recording(tmp_path / "missing", "rank0") is None


def test_steps_in_which_it_records_are_told_apart(kind, own):
    profile = kind()
    profile.prepare_trace()
    assert own.records
    profile.stop_trace()
    assert not own.records


def test_our_own_windows_are_none_of_the_programs(kind, own, tmp_path):
    OWN.building = True
    profile = kind()
    profile.prepare_trace()
    OWN.building = False
    profile.stop_trace()
    assert own.recording(tmp_path, "rank0") is None
