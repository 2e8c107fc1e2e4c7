import json
from importlib.util import find_spec

import msgspec
import pytest

from pinchpoint.cli import main
from pinchpoint.errors import UsageError
from pinchpoint.hardware import ceilings as store

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(find_spec("torch") is None, reason="measures with torch"),
]

CPU = store.Ceilings(
    device="A processor",
    measured_at="2026-11-28T10:00:00+00:00",
    fingerprint={"torch": "2.11.0"},
    measurements=(store.Measurement(what="copy", value=2.5e10, unit="bytes/s"),),
)


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A store of its own, and measuring that only notes what was asked."""
    monkeypatch.setenv("PINCHPOINT_CEILINGS", str(tmp_path / "store"))
    asked = []

    def measure(device, **wanted):
        asked.append((device, wanted["dtypes"], wanted["sustained_s"]))
        wanted["progress"]("memory bandwidth")
        return CPU

    monkeypatch.setattr("pinchpoint.hardware.measure.measure", measure)
    monkeypatch.setattr("pinchpoint.hardware.measure.name_of", lambda device: "A processor")
    return asked


def run(capsys, *words) -> tuple[int, str, str]:
    code = main(["ceilings", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_what_was_measured_is_kept_and_shown(capsys, machine, tmp_path):
    code, out, err = run(capsys, "--device", "cpu", "--dtypes", "fp32, bf16", "--sustained", 0)
    assert code == 0
    assert machine == [("cpu", ("fp32", "bf16"), 0.0)]
    assert out.splitlines()[0] == "A processor, measured 2026-11-28T10:00:00+00:00"
    assert "25.0 GB/s" in out
    assert "memory bandwidth" in err
    assert store.stored("A processor") == CPU
    code, again, err = run(capsys, "--stored")
    assert (code, again, err) == (0, out, "")
    assert len(machine) == 1


def test_figures_that_a_later_measurement_lacks_stay(capsys, monkeypatch, tmp_path):
    """A busy machine gives figures that are refused, and no reason to forget the good ones."""
    assert run(capsys, "--device", "cpu")[0] == 0
    busy = msgspec.structs.replace(
        CPU,
        measured_at="2026-11-29T10:00:00+00:00",
        measurements=(store.Measurement(what="triad", value=1e10, unit="bytes/s"),),
        refused=(
            store.Refused(what="copy", value=1e10, unit="bytes/s", why="others had its CPUs"),
        ),
    )
    monkeypatch.setattr("pinchpoint.hardware.measure.measure", lambda device, **more: busy)
    code, out, err = run(capsys, "--device", "cpu")
    assert code == 0
    assert "of 2026-11-28 there stay: copy" in err
    assert "copy, of 2026-11-28" in out
    assert "25.0 GB/s" in out
    kept = store.stored("A processor")
    assert {(m.what, m.value) for m in kept.measurements} == {("copy", 2.5e10), ("triad", 1e10)}
    # Of another driver nothing stays; and what holds no figure is not kept.
    none = msgspec.structs.replace(busy, fingerprint={"torch": "2.13.0"}, measurements=())
    monkeypatch.setattr("pinchpoint.hardware.measure.measure", lambda device, **more: none)
    assert "nothing is kept" in run(capsys, "--device", "cpu")[2]
    assert store.stored("A processor") == kept
    other = msgspec.structs.replace(busy, fingerprint={"torch": "2.12.0"})
    monkeypatch.setattr("pinchpoint.hardware.measure.measure", lambda device, **more: other)
    assert "there stay" not in run(capsys, "--device", "cpu")[2]


def test_json_and_a_file_of_ones_own(capsys, tmp_path):
    file = tmp_path / "c.json"
    code, out, err = run(capsys, "--json", "--no-store", "-o", file)
    assert code == 0
    assert json.loads(out)["schema"] == "pinchpoint.ceilings/1"
    assert store.load(file) == CPU
    assert store.stored("A processor") is None
    assert "c.json" in err


def test_what_makes_no_sense_is_one_line(capsys, machine):
    code, out, err = run(capsys, "--sustained", -1)
    assert (code, out) == (2, "")
    assert "number of seconds" in err
    code, out, err = run(capsys, "--stored")
    assert (code, out) == (2, "")
    assert "nothing was measured" in err
    assert machine == []


@pytest.fixture
def no_device(monkeypatch):
    def absent(device):
        raise UsageError("there is no CUDA device here", hint="none")

    monkeypatch.setattr("pinchpoint.hardware.measure.name_of", absent)


@pytest.mark.usefixtures("no_device")
def test_without_the_device_the_newest_that_is_kept_is_shown(capsys):
    store.save(CPU)
    assert main(["ceilings", "--stored", "--device", "cuda:99"]) == 0
    out, err = capsys.readouterr()
    assert "A processor" in out
    assert "cuda:99 is not here" in err


@pytest.mark.usefixtures("no_device")
def test_without_the_device_and_with_nothing_kept_the_answer_is_one_line(capsys):
    assert main(["ceilings", "--stored", "--device", "cuda:99"]) == 2
    assert "no ceilings are kept in" in capsys.readouterr().err
