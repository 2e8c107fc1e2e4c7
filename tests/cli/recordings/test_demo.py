"""The demo, as a newcomer runs it: on the embedded recording, without a network or a device."""

import pytest

from pinchpoint.cli import main as cli
from pinchpoint.cli.recordings.demo import activation, as_typed, demo_recording


@pytest.fixture(scope="module")
def report():
    return demo_recording()[1]


def test_the_demo_prints_an_answer_and_writes_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli(["demo"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("item_sync.json.gz · NVIDIA H100 80GB HBM3 · 10 steps")
    assert "wrote report.html" in err
    assert "item_sync" in (tmp_path / "report.html").read_text("utf-8")


def test_the_recording_is_healthy(report):
    assert report.health.verdict == "good"
    assert report.steps.count == 10


def test_the_hidden_read_is_named_with_its_line(report):
    (read,) = [f for f in report.findings if f.id == "sync-in-loop"]
    assert read.location.file == "record_gpu.py"
    assert read.location.line == 65
    assert read.predicted_step_ns < report.steps.unprofiled_ns_predicted


def test_its_hints_work_without_an_activated_environment(tmp_path, monkeypatch):
    binaries = tmp_path / ".venv/bin"
    binaries.mkdir(parents=True)
    (binaries / "pinchpoint").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(binaries / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert as_typed() == ".venv/bin/pinchpoint"
    assert activation(as_typed()) == "source .venv/bin/activate"
    monkeypatch.setenv("PATH", str(binaries))
    assert as_typed() == "pinchpoint"
