"""Windows of JAX, torch_xla and nsys, on stand-ins for those modules that note what is called."""

import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pinchpoint.capture.settings import Settings
from pinchpoint.capture.windows import new_window, threads
from pinchpoint.capture.windows import torch as window
from pinchpoint.capture.windows.nsys import NsysWindow
from pinchpoint.capture.windows.recording import HELD_UP, JaxWindow, XlaWindow
from pinchpoint.capture.windows.threads import join_in_turns


class Profiler(ModuleType):
    """``start_trace`` and ``stop_trace``, which writes what the real ones write."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []

    def start_trace(self, folder):
        self.calls.append("start")
        self.folder = Path(folder)

    def stop_trace(self):
        self.calls.append("stop")
        path = self.folder / "plugins/profile/now/host.xplane.pb"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"xplane")


@pytest.fixture
def jax(monkeypatch):
    profiler = Profiler("jax.profiler")
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(profiler=profiler))
    return profiler


@pytest.fixture
def xla(monkeypatch):
    profiler = Profiler("torch_xla.debug.profiler")
    for name in ("torch_xla", "torch_xla.debug"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "torch_xla.debug.profiler", profiler)
    return profiler


def recorded(window):
    window.prime()
    window.open()
    for _ in range(4):
        window.step()
    return window.close()


@pytest.mark.parametrize("kind", [JaxWindow, XlaWindow])
def test_steps_are_counted_from_the_beginning_of_the_trace(kind, jax, xla, tmp_path):
    recording = recorded(kind(tmp_path, "rank0"))
    assert recording.steps == 3
    assert recording.problem is None
    assert recording.file.name.endswith("plugins/profile/now/host.xplane.pb")
    assert (tmp_path / recording.file.name).read_bytes() == b"xplane"
    assert {"start", "stop"} == {*jax.calls, *xla.calls}


def test_jax_writes_no_second_copy_for_a_viewer(jax, tmp_path, monkeypatch):
    """``stop_trace`` of JAX writes its recording as JSON too, which takes longer than all else."""
    state = SimpleNamespace(
        lock=threading.Lock(),
        profile_session=SimpleNamespace(stop=lambda: b"xplane"),
        reset=lambda: jax.calls.append("reset"),
    )
    inner = SimpleNamespace(
        _profile_state=state, clear_metadata=lambda: jax.calls.append("metadata")
    )
    monkeypatch.setitem(sys.modules, "jax._src.profiler", inner)
    recording = recorded(JaxWindow(tmp_path, "rank0"))
    assert recording.problem is None
    assert (tmp_path / recording.file.name).read_bytes() == b"xplane"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [
        recording.file.name.rpartition("/")[2]
    ]
    assert jax.calls == ["start", "reset", "metadata"]


@pytest.mark.parametrize("kind", [JaxWindow, XlaWindow])
def test_a_program_that_ends_first_leaves_no_recording(kind, jax, xla, tmp_path):
    window = kind(tmp_path, "rank0")
    window.open()
    assert "had not begun" in window.close().problem


@pytest.mark.parametrize("kind", [JaxWindow, XlaWindow])
def test_the_trace_begins_one_step_early_so_that_each_counted_step_has_its_name(
    kind, jax, xla, tmp_path
):
    window = kind(tmp_path, "rank0")
    window.open()
    assert "start" in [*jax.calls, *xla.calls]
    assert window.steps == -1


class Array:
    def __init__(self, calls, *, deleted=False):
        self.calls, self.deleted = calls, deleted

    def block_until_ready(self):
        if self.deleted:
            raise RuntimeError("Array has been deleted")
        assert threading.current_thread() is threading.main_thread()
        self.calls.append("ready")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_on_a_gpu_jax_has_done_all_before_its_profiler_begins_and_ends(
    elsewhere, jax, tmp_path, monkeypatch
):
    arrays = [Array(jax.calls, deleted=True), Array(jax.calls)]
    monkeypatch.setattr(sys.modules["jax"], "default_backend", lambda: "gpu", raising=False)
    monkeypatch.setattr(sys.modules["jax"], "live_arrays", lambda: arrays, raising=False)
    monkeypatch.setattr(threads, "IN_MAIN_WITHIN_S", 30.0)  # others may have the cores
    for captures in ("graph_is_captured", "captures_under_way"):  # by what other tests left
        monkeypatch.setattr(threads, captures, lambda: False)
    found = []
    record = threading.Thread(target=lambda: found.append(recorded(JaxWindow(tmp_path, "r"))))
    if elsewhere:
        record.start()
        join_in_turns(record, 60.0)  # the main thread, in which pending calls are made
    else:
        record.run()
    assert jax.calls == ["ready", "start", "ready", "stop"]
    assert found[0].problem is None


def test_on_a_gpu_jax_is_not_recorded_where_the_main_thread_cannot_wait(jax, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["jax"], "default_backend", lambda: "gpu", raising=False)
    monkeypatch.setattr(threads, "IN_MAIN_WITHIN_S", 0.01)
    monkeypatch.setattr(threads, "captures_under_way", lambda: True)
    found = []
    record = threading.Thread(target=lambda: found.append(recorded(JaxWindow(tmp_path, "r"))))
    record.start()
    join_in_turns(record, 60.0)
    assert (jax.calls, found[0].problem) == ([], HELD_UP)


def test_an_old_torch_xla_is_said(xla, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_xla.debug.profiler", ModuleType("old"))
    with pytest.raises(RuntimeError, match="too old"):
        XlaWindow(tmp_path, "rank0").prime()


def test_nsys_sees_the_range_and_the_steps(monkeypatch):
    calls = []
    runtime = SimpleNamespace(
        cudaProfilerStart=lambda: calls.append("start"),
        cudaProfilerStop=lambda: calls.append("stop"),
    )
    nvtx = SimpleNamespace(range_push=calls.append, range_pop=lambda: calls.append("pop"))
    cuda = SimpleNamespace(cudart=lambda: runtime, nvtx=nvtx, synchronize=lambda: None)
    ranges = SimpleNamespace(__enter__=lambda: None, __exit__=lambda *_: None)
    profiler = SimpleNamespace(emit_nvtx=lambda **_: ranges)
    torch = SimpleNamespace(cuda=cuda, autograd=SimpleNamespace(profiler=profiler))
    monkeypatch.setitem(sys.modules, "torch", torch)
    recording = recorded(NsysWindow())
    assert recording.steps == 3
    assert calls[:3] == ["start", "ProfilerStep#0", "pop"]
    assert calls[-2:] == ["pop", "stop"]


def test_the_window_fits_the_program(monkeypatch, tmp_path):
    for name in ("torch", "torch_xla", "jax", "jax._src.xla_bridge"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert new_window(Settings(""), tmp_path, "rank0") is None
    assert new_window(Settings("", tool="none"), tmp_path, "rank0") is None
    assert isinstance(new_window(Settings("", tool="nsys"), tmp_path, "rank0"), NsysWindow)
    bridge = SimpleNamespace(backends_are_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    assert isinstance(new_window(Settings(""), tmp_path, "rank0"), JaxWindow)


def test_a_beginning_warns_nobody(monkeypatch):
    profiler = ModuleType("torch.profiler.profiler")
    profiler.torch, profiler._warn_once = None, warnings.warn
    monkeypatch.setitem(sys.modules, "torch.profiler.profiler", profiler)
    monkeypatch.setattr(window, "_graphs_are_safe", lambda: False)
    with window._building():
        profiler._warn_once("events are cleared")  # a warning would be an error here
    assert profiler._warn_once is warnings.warn


def test_the_first_recording_imports_no_compiler(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    program = (
        "import sys, torch\n"
        "from pathlib import Path\n"
        "from pinchpoint.capture.settings import Settings\n"
        "from pinchpoint.capture.windows.torch import TorchWindow\n"
        "TorchWindow.prime()\n"
        "window = TorchWindow(Settings(folder='.'), Path('.'), 'x')\n"
        "window.open()\n"
        "window.step()\n"
        "torch.ones(3) + 1\n"
        "assert window.close(step_ended=True).file.operators\n"
        "assert 'torch._inductor' not in sys.modules\n"
        "assert torch.profiler.profiler.torch is torch\n"
        "assert torch._inductor.config is not None\n"  # it is there for who asks
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
