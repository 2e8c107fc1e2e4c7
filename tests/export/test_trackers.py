"""Numbers and pages in the trackers themselves, read back with their own readers."""

import sys
import warnings
from pathlib import Path

import pytest

import pinchpoint as pp
from pinchpoint.cli import main
from pinchpoint.errors import MissingExtra, UsageError
from pinchpoint.export.trackers import scalars
from report_sample import full_report, hostile_report

DEMO = Path(__file__).parents[2] / "src/pinchpoint/data/item_sync.json.gz"


def imported(library):
    """The tracker's library, whose own warnings are not ours to fix; skips without it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(library, reason=f"{library} is not installed")


def test_numbers_carry_their_unit_and_unknown_ones_are_left_out():
    found = scalars(full_report())
    assert found["pinchpoint/step_ms"] == 14.9
    assert found["pinchpoint/recorded_step_ms"] == 22.3
    assert found["pinchpoint/device_idle_ratio"] == 0.4517
    assert found["pinchpoint/findings/sync-in-loop/saves_ms"] == pytest.approx(4.3)
    parts = {name: ms for name, ms in found.items() if "/breakdown/" in name}
    assert sum(parts.values()) == pytest.approx(14.9)
    assert all(name.endswith(("_ms", "_ratio", "_count")) for name in found)
    assert None not in found.values()


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb", "mlflow"])
def test_without_the_library_the_hint_installs_it(tracker, monkeypatch, tmp_path):
    for name in ("tensorboard.compat.proto.summary_pb2", "wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra) as caught:
        pp.log_to(full_report(), tracker, folder=tmp_path)
    assert caught.value.hint.startswith(f"pip install {tracker}")


def test_an_unknown_tracker_and_a_missing_folder_are_said():
    with pytest.raises(UsageError, match="comet"):
        pp.log_to(full_report(), "comet")
    with pytest.raises(UsageError, match="folder"):
        pp.log_to(full_report(), "tensorboard")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("report", [full_report, hostile_report])
def test_tensorboard_reads_scalars_steps_and_text(report, tmp_path):
    imported("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    pp.log_to(report(), "tensorboard", folder=tmp_path / "runs", step=7)
    events = EventAccumulator(str(tmp_path / "runs"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert tags >= set(scalars(report()))
    for name, value in scalars(report()).items():
        ((step, read),) = [(e.step, e.value) for e in events.Scalars(name)]
        assert (step, read) == (7, pytest.approx(value))
    assert events.Tags()["tensors"] == ["pinchpoint/report"]
    (text,) = events.Tensors("pinchpoint/report")
    assert text.tensor_proto.string_val[0].startswith(b"## Pinchpoint")
    if report is full_report:
        curve = events.Scalars("pinchpoint/recorded_steps_ms")
        assert [e.step for e in curve] == list(range(7, 15))
        assert [e.value for e in curve][4] == 41.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_command_writes_for_tensorboard(tmp_path, capsys):
    imported("tensorboard")
    out = tmp_path / "runs"
    assert main(["export", str(DEMO), "--to", "tensorboard", "-o", str(out)]) == 0
    assert [file.name.startswith("events.out.tfevents") for file in out.iterdir()] == [True]
    (tmp_path / "file").write_text("x")
    assert main(["export", str(DEMO), "--to", "tensorboard", "-o", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_numbers_verdict_and_page(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = imported("mlflow")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    with pytest.raises(UsageError, match="no run of MLflow"):
        pp.log_to(full_report(), "mlflow")
    with mlflow.start_run() as run:
        pp.log_to(full_report(), "mlflow", step=3)
        pp.log_to(full_report(), "mlflow", run=run.info.run_id, step=4, page="<p>whole</p>")
    client = mlflow.MlflowClient()
    kept = client.get_run(run.info.run_id)
    assert kept.data.metrics == pytest.approx(scalars(full_report()))
    history = client.get_metric_history(run.info.run_id, "pinchpoint/step_ms")
    assert [metric.step for metric in history] == [3, 4]
    assert kept.data.tags["pinchpoint.verdict"] == full_report().verdict
    (page,) = (tmp_path / "store").rglob("pinchpoint.html")
    assert page.read_text() == "<p>whole</p>"


@pytest.mark.filterwarnings("ignore")
def test_wandb_keeps_numbers_verdict_and_page(tmp_path, monkeypatch):
    wandb = imported("wandb")
    for name, value in (("MODE", "offline"), ("SILENT", "true"), ("DIR", str(tmp_path))):
        monkeypatch.setenv(f"WANDB_{name}", value)
    with pytest.raises(UsageError, match=r"no run of W&B"):
        pp.log_to(full_report(), "wandb")
    run = wandb.init(project="test", dir=tmp_path)
    pp.log_to(full_report(), "wandb")
    summary = dict(run.summary)
    run.finish()
    assert summary["pinchpoint/verdict"] == full_report().verdict
    assert summary["pinchpoint/step_ms"] == 14.9
    assert list(tmp_path.rglob("*.html"))
    assert list(tmp_path.rglob("*.wandb"))


def test_nothing_is_imported_before_it_is_asked_for():
    import subprocess

    code = (
        "import sys, pinchpoint as pp; pp.log_to, pp.log_spans; "
        "print(sorted({'wandb', 'mlflow', 'tensorboard', 'opentelemetry'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
