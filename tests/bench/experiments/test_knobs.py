import json
import sys

import pytest

from pinchpoint.bench.experiments.knobs import KNOBS, proposed, settings_of, with_settings
from pinchpoint.bench.run import Arm, Place, RunOptions, measure_run
from pinchpoint.errors import UsageError
from pinchpoint.inside import KNOBS_VARIABLE


def _texts(settings):
    return [s.text for s in settings]


def test_a_knob_at_its_usual_values_or_given_ones():
    assert _texts(settings_of("compile")) == ["compile=default", "compile=reduce-overhead"]
    assert _texts(settings_of("num_workers=4,8")) == ["num_workers=4", "num_workers=8"]


@pytest.mark.parametrize("text", ["speed", "speed=3", "tf32="])
def test_not_a_knob(text):
    with pytest.raises(UsageError):
        settings_of(text)


def test_knobs_are_proposed_once_in_their_order():
    found = proposed(["channels_last", "tf32", "autocast", "autocast"])
    assert _texts(found) == ["channels_last=true", "tf32=true", "autocast=bfloat16"]


def test_inside_knobs_and_variables():
    base = Arm("B", ("python", "t.py"), env={"A": "1"})
    arm = with_settings(base, (*settings_of("num_workers=4"), *settings_of("omp_threads=1")), "A")
    # Threads from inside, too: a program that sets them itself undoes the variable.
    assert json.loads(arm.env[KNOBS_VARIABLE]) == {"num_workers": 4, "omp_threads": 1}
    assert (arm.env["OMP_NUM_THREADS"], arm.env["A"]) == ("1", "1")
    assert arm.params == {"num_workers": "4", "omp_threads": "1"}
    with pytest.raises(UsageError, match="not a whole number"):
        with_settings(base, tuple(settings_of("num_workers=many")), "A")


def test_every_knob_says_how_to_keep_it():
    assert all(k.fix and k.what and k.values for k in KNOBS)
    assert len({k.name for k in KNOBS}) == len(KNOBS)


PROGRAM = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = DataLoader(TensorDataset(torch.randn(16, 3, 4, 4)), batch_size=4)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.Flatten(), torch.nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for (x,) in data:
    out = model(x)
    optimizer.zero_grad(); out.float().sum().backward(); optimizer.step()
print("batches", len(data), "out", out.dtype, "fused", optimizer.defaults.get("fused"),
      "tf32", torch.get_float32_matmul_precision(),
      "last", model[0].weight.is_contiguous(memory_format=torch.channels_last))
"""


@pytest.mark.torch
def test_knobs_reach_a_program_that_does_not_know_them(tmp_path):
    pytest.importorskip("torch", reason="turns knobs of torch")
    texts = ("batch_size=x2", "autocast", "fused_optimizer", "tf32", "channels_last", "gc")
    settings = tuple(s for text in texts for s in settings_of(text))
    arm = with_settings(Arm("B", (sys.executable, "-c", PROGRAM)), settings, "A")
    run = measure_run(arm, RunOptions("t"), Place(tmp_path / "run"))
    said = (tmp_path / "run/stdout.log").read_text().split()
    assert run.status == "ok", (tmp_path / "run/stderr.log").read_text()
    assert said == [
        *("batches", "2", "out", "torch.bfloat16", "fused", "True"),
        *("tf32", "high", "last", "True"),
    ]
    [log] = [json.loads(p.read_bytes()) for p in (tmp_path / "run").glob("knobs-*.json")]
    assert log["batch_size: 4 -> 8"] == 1
    assert log["autocast: calls"] == 2
    assert log["fused_optimizer: AdamW"] == 1
    assert log["gc: off"] == 1


DOUBLE = """
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 2).double()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
out = model(torch.ones(3, 4, dtype=torch.float64))
out.sum().backward(); optimizer.step()
print(out.dtype, model.weight.dtype, model.weight.grad.dtype, torch.get_num_threads())
"""


@pytest.mark.torch
def test_double_models_in_32_bits_and_threads_that_a_program_sets(tmp_path):
    pytest.importorskip("torch", reason="turns knobs of torch")
    settings = (*settings_of("float32"), *settings_of("omp_threads=2"))
    arm = with_settings(Arm("B", (sys.executable, "-c", DOUBLE)), settings, "A")
    run = measure_run(arm, RunOptions("t"), Place(tmp_path / "run"))
    assert run.status == "ok", (tmp_path / "run/stderr.log").read_text()
    said = (tmp_path / "run/stdout.log").read_text().split()
    assert said == [*("torch.float32",) * 3, "2"]
    [log] = [json.loads(p.read_bytes()) for p in (tmp_path / "run").glob("knobs-*.json")]
    assert log["float32: model"] == 1
    assert log["omp_threads: set_num_threads(1) -> 2"] == 1
