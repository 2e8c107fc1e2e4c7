from types import SimpleNamespace

import msgspec
import pytest

from pinchpoint.errors import MissingExtra, UnreadableFile, UsageError
from pinchpoint.hardware import find_spec
from pinchpoint.hardware.ceilings import Ceilings, Measurement, folder, key_of, load, save, stored
from pinchpoint.hardware.measure import sift
from pinchpoint.hardware.measure.timing import Machine

H100 = find_spec("NVIDIA H100 80GB HBM3")


def ceilings(**more):
    facts = {
        "device": "NVIDIA H100 80GB HBM3",
        "measured_at": "2026-11-28T10:00:00+00:00",
        "fingerprint": {"driver": "580", "power_limit_w": 700},
        "measurements": (
            gemm(750e12),
            gemm(650e12, mode="sustained"),
            stream(2.9e12),
            stream(3.0e12, "triad"),
        ),
    }
    return Ceilings(**(facts | more))


def gemm(value, dtype="bf16", mode="burst"):
    return Measurement(what="gemm", dtype=dtype, mode=mode, value=value, unit="FLOP/s")


def stream(value, what="copy"):
    return Measurement(what=what, value=value, unit="bytes/s")


def test_bursts_are_the_ceiling_and_the_best_stream_is_the_bandwidth():
    found = ceilings()
    assert found.gemm_flop_per_s == {"bf16": 750e12}
    assert found.memory_bytes_per_s == 3.0e12
    assert found.find("gemm", "bf16", "sustained").value == 650e12
    assert found.find("gemm", "fp8") is None


def test_what_exceeds_the_data_sheet_is_refused():
    kept, refused = sift([gemm(750e12), gemm(1.2e15), stream(3.0e12), stream(3.9e12)], H100, None)
    assert [m.value for m in kept] == [750e12, 3.0e12]
    assert kept[0].data_sheet_ratio == pytest.approx(0.758, abs=1e-3)
    assert [(r.what, r.value) for r in refused] == [("gemm", 1.2e15), ("copy", 3.9e12)]
    assert "more than the device can do" in refused[0].why


def test_a_higher_clock_allows_more_than_the_data_sheet():
    """The H100's tensor peak is quoted at 1830 MHz, and it may run at 1980 MHz."""
    quick = gemm(1.05e15)
    assert sift([quick], H100, None)[0] == ()
    ((kept,), refused) = sift([quick], H100, 1.98e9)
    assert kept.data_sheet_ratio == pytest.approx(1.061, abs=1e-3)
    assert refused == ()


def test_fp64_products_may_use_the_matrix_units():
    assert sift([gemm(60e12, "fp64")], H100, None)[1] == ()
    assert sift([gemm(80e12, "fp64")], H100, None)[0] == ()


def test_without_a_data_sheet_everything_is_kept():
    kept, refused = sift([gemm(9e15)], None, None)
    assert (len(kept), refused) == (1, ())
    assert kept[0].data_sheet_ratio is None


def test_a_document_survives_the_disk(tmp_path):
    path = save(ceilings(), tmp_path / "c.json")
    assert load(path) == ceilings()
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize("value", [0, -5.0, 1e-300, 1e300])
def test_figures_of_no_machine_are_left_out(tmp_path, value):
    damaged = Measurement(what="gemm", value=value, unit="FLOP/s", dtype="bf16", mode="burst")
    whole = ceilings()
    both = (*whole.measurements, damaged)
    path = save(msgspec.structs.replace(whole, measurements=both), tmp_path / "c.json")
    assert load(path) == whole


def test_the_store_is_keyed_by_fingerprint_and_gives_the_newest(tmp_path, monkeypatch):
    monkeypatch.setenv("PINCHPOINT_CEILINGS", str(tmp_path))
    assert folder() == tmp_path
    assert stored("NVIDIA H100 80GB HBM3") is None
    save(ceilings())
    newer = ceilings(measured_at="2026-12-01T00:00:00+00:00", fingerprint={"driver": "590"})
    save(newer)
    save(ceilings(measured_at="2026-11-29T00:00:00+00:00"))  # replaces the first
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert stored("NVIDIA H100 80GB HBM3") == newer
    assert stored("NVIDIA A10") is None
    assert stored(None) is None
    (tmp_path / "other.json").write_text("[1")
    assert stored("NVIDIA H100 80GB HBM3") == newer


def test_the_order_of_facts_does_not_matter():
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2})


NO_UTF_8 = b'{"schema": "\xed\xa0\x80"}'


@pytest.mark.parametrize("text", [b"", b"{}", b"[1", b'{"schema": "x"}', b"[" * 10_000, NO_UTF_8])
def test_what_is_no_document_is_refused(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_bytes(text)
    with pytest.raises(UnreadableFile, match=r"bad\.json"):
        load(path)


def test_a_document_of_a_later_version(tmp_path):
    path = tmp_path / "later.json"
    later = msgspec.structs.replace(ceilings(), schema="pinchpoint.ceilings/9")
    path.write_bytes(msgspec.json.encode(later))
    with pytest.raises(UnreadableFile, match="ceilings/9"):
        load(path)


@pytest.mark.torch
def test_this_machine_can_be_measured(monkeypatch):
    pytest.importorskip("torch", reason="measures with torch")
    import pinchpoint.hardware.measure as hardware_measure
    from pinchpoint.hardware.measure import measure, products, transfers

    monkeypatch.setattr(transfers, "_CPU_ARRAY_BYTES", 1 << 20)
    monkeypatch.setattr(products, "CPU_SHAPES", ((128, 128, 128),))
    # What else runs here meanwhile spreads the samples of so short a measurement.
    monkeypatch.setattr(hardware_measure, "MOST_SPREAD_RATIO", float("inf"))
    monkeypatch.setattr(hardware_measure, "MOST_WAITED_RATIO", 1.0)
    said = []
    found = measure("cpu", dtypes=("fp32",), sustained_s=0.05, progress=said.append)
    assert found.gemm_flop_per_s["fp32"] > 1e6  # however busy the machine is
    assert found.find("gemm", "fp32", "sustained").value > 1e6
    assert found.memory_bytes_per_s > 1e6
    assert found.device
    assert found.fingerprint["torch"]
    assert said[0] == "memory bandwidth"


@pytest.mark.torch
def test_devices_and_formats_that_are_not_there():
    torch = pytest.importorskip("torch", reason="measures with torch")
    from pinchpoint.hardware.measure import measure

    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="no CUDA device"):
            measure("cuda:0")
    with pytest.raises(UsageError, match="cannot measure"):
        measure("meta")
    with pytest.raises(UsageError, match="unknown number format"):
        measure("cpu", dtypes=("fp7",))


def test_without_torch(monkeypatch):
    from pinchpoint.hardware.measure import measure

    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtra, match="needs PyTorch"):
        measure("cpu")


@pytest.mark.parametrize(("spread", "kept"), [(0.04, True), (0.5, True), (63.96, False)])
def test_samples_that_do_not_agree_are_no_ceiling(spread, kept):
    measured = msgspec.structs.replace(gemm(1e12, "bf16"), spread_ratio=spread)
    found, refused = sift([measured], None, None)
    assert bool(found) == kept
    if not kept:
        assert "6396 % of their median" in refused[0].why


@pytest.mark.parametrize(("waited", "kept"), [(None, True), (0.01, True), (0.51, False)])
def test_what_others_took_the_cpus_of_is_no_ceiling(waited, kept):
    """Its samples agree: each of them had half of a CPU."""
    measured = msgspec.structs.replace(gemm(1e12, "fp32"), spread_ratio=0.02, waited_ratio=waited)
    found, refused = sift([measured], None, None)
    assert bool(found) == kept
    if not kept:
        assert "for 51 % of the time one of its threads waited" in refused[0].why


def test_samples_with_the_cpu_of_others_are_taken_again(monkeypatch):
    """Of nine samples at most three are enough; where fewer had their CPU, all count."""
    torch = SimpleNamespace(device=lambda name: SimpleNamespace(type=name, index=None))
    machine = Machine(torch, "cpu")
    monkeypatch.setattr(machine, "once", lambda *_: 10.0)
    taken = iter([(20.0, 0.5), (10.0, 0.0), (21.0, 0.4), (11.0, 0.05), (12.0, 0.0)])
    monkeypatch.setattr(machine, "sample", lambda *_: next(taken))
    timed = machine.bursts(lambda: None, bursts=3)
    assert (timed.samples_ns, timed.waited_ratio) == ((10.0, 11.0, 12.0), 0.0)
    monkeypatch.setattr(machine, "sample", lambda *_: (20.0, 0.5))
    timed = machine.bursts(lambda: None, bursts=3)
    assert (timed.samples_ns, timed.waited_ratio) == ((20.0,) * 9, 0.5)
