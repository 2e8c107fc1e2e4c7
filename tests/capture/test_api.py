"""Recording from inside a program, alone and through the frameworks' own hooks."""

import json
import runpy
import sys
from pathlib import Path

import pytest

import pinchpoint as pp
from pinchpoint.errors import UsageError
from pinchpoint.serve.jobs import job_facts

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("default")]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module", autouse=True)
def _torch():
    global torch  # not when tests are collected: its import takes seconds in every process
    torch = pytest.importorskip("torch", reason="records with torch.profiler")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def loader(batches=60, **options):
    data = torch.utils.data.TensorDataset(torch.ones(batches * 4, 8))
    return torch.utils.data.DataLoader(data, batch_size=4, **options)


def train_on(batches):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in batches:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()


def process_of(folder):
    (path,) = Path(folder, "processes").glob("rank*.json")
    return json.loads(path.read_text())


def test_a_block_is_timed_recorded_and_readable(tmp_path):
    with pp.capture(out=tmp_path / "run", shapes=True) as cap:
        train_on(cap.steps(loader()))
    assert cap.problems == []
    trace = pp.load(cap.folder)
    assert len(trace.steps) == 6
    assert len(trace.run.unprofiled_step_ns) >= 10  # steps that get longer are recorded once more
    assert min(trace.run.data_wait_ns) > 0
    steps = process_of(cap.folder)["steps"]
    assert (steps["by"], steps["count"]) == ("call", 60)
    assert 0 < cap.seconds_spent < 60 * 0.01


def test_batches_from_anywhere_count_their_wait(tmp_path):
    with pp.capture(out=tmp_path / "run") as cap:
        train_on(cap.steps([(torch.ones(4, 8),)] * 40))
    assert process_of(cap.folder)["steps"]["count"] == 40


@pytest.mark.parametrize("both", [False, True])
def test_a_step_that_the_program_tells_counts_once(both, tmp_path):
    with pp.watch(out=tmp_path / "run") as cap:
        for _ in cap.steps(range(40)) if both else range(40):
            pp.step()
    pp.step()  # nobody listens any more
    assert process_of(cap.folder)["steps"]["count"] == 40


def test_an_exception_passes_and_what_was_recorded_stays(tmp_path):
    def breaking():
        yield from [(torch.ones(4, 8),)] * 50
        raise RuntimeError("the user's own mistake")

    with pytest.raises(RuntimeError, match="own mistake"), pp.capture(out=tmp_path / "run") as cap:
        train_on(cap.steps(breaking()))
    assert len(list((tmp_path / "run/traces").iterdir())) == 1
    assert json.loads((tmp_path / "run/run.json").read_text())["exit_code"] == 1


def test_the_loader_is_left_as_it_was(tmp_path):
    module = sys.modules["torch.utils.data.dataloader"]
    before = module._BaseDataLoaderIter.__next__, module.DataLoader.__iter__
    with pp.capture(out=tmp_path / "run") as cap:
        train_on(cap.steps(loader(4)))
    assert (module._BaseDataLoaderIter.__next__, module.DataLoader.__iter__) == before


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError), pp.capture(out=tmp_path / "file/run"):
        pass


def test_under_pinchpoint_run_the_block_only_passes_through(tmp_path, monkeypatch):
    monkeypatch.setenv("PINCHPOINT_RUN", str(tmp_path))
    with pp.capture(out=tmp_path / "run") as cap:
        assert list(cap.steps([1, 2])) == [1, 2]
    assert cap.folder is None
    assert not (tmp_path / "run").exists()


def test_the_package_and_the_function_share_their_name(tmp_path):
    import pinchpoint.capture.settings  # binds pinchpoint.capture to the package

    with pinchpoint.capture(out=tmp_path / "run") as cap:
        cap.step()
    assert (tmp_path / "run/run.json").exists()


def test_the_flight_recorder_records_only_what_is_slower(tmp_path, monkeypatch):
    ticks = iter(range(10**6))
    durations = [10] * 260 + [20] * 60
    clock = [0]
    with pp.watch(out=tmp_path / "run") as recorder:
        recorder._session.clock._clock_ns = lambda: clock[0]
        for duration in durations:
            clock[0] += duration * 1_000_000
            next(ticks)
            torch.ones(4, 8) @ torch.ones(8, 4)
            recorder.step()
    assert len(list((tmp_path / "run/traces").iterdir())) == 1
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["recordings"]


def test_a_watch_without_trouble_records_nothing_and_is_seen_by_a_fleet_at_once(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("pinchpoint.capture.api.SAVE_EVERY_NS", 0)
    with pp.watch(out=tmp_path / "run") as recorder:
        train_on(recorder.steps(loader(30)))
        facts = job_facts(tmp_path / "run", "run")  # while it goes on
        assert (facts.status, facts.steps) == ("running", 30)
        assert facts.step_ms is not None
    assert list((tmp_path / "run/traces").iterdir()) == []
    assert recorder.problems == []


def test_lightning(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    from pinchpoint.capture.lightning import PinchpointCallback

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def training_step(self, batch, index):
            return self.layer(batch[0]).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = PinchpointCallback(out=tmp_path / "run")
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(Module(), loader())
    trace = pp.load(callback.capture.folder)
    assert len(trace.steps) == 6
    assert process_of(callback.capture.folder)["steps"]["count"] == 60


def test_the_hugging_face_trainer(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    from pinchpoint.capture.huggingface import PinchpointCallback

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x):
            return {"loss": self.layer(x).sum()}

    callback = PinchpointCallback(out=tmp_path / "run")
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=50,
        per_device_train_batch_size=4,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    )
    data = [{"x": torch.ones(8)} for _ in range(256)]
    trainer = transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=[callback])
    trainer.train()
    assert len(pp.load(callback.capture.folder).steps) == 6
    assert process_of(callback.capture.folder)["steps"]["count"] == 50


def test_the_accelerate_example(tmp_path, monkeypatch, capsys):
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    monkeypatch.setattr(sys, "argv", ["accelerate_train.py", str(tmp_path / "run")])
    runpy.run_path(str(EXAMPLES / "accelerate_train.py"), run_name="__main__")
    assert "run folder" in capsys.readouterr().out
    assert len(pp.load(tmp_path / "run").steps) == 6
