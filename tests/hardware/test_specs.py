import pytest

from pinchpoint.hardware import alike_spec, all_specs, derived_spec, find_spec
from pinchpoint.hardware.specs import FLOP_PER_CYCLE, DeviceSpec, _normal

PEAKS = {
    "fp64", "fp64_matrix", "fp32", "fp32_matrix", "tf32", "fp16", "bf16", "fp8", "int8", "fp4",
}  # fmt: skip


def test_the_h100_is_as_its_data_sheet_says():
    spec = find_spec("NVIDIA H100 80GB HBM3")
    assert spec is not None
    assert spec.peak_flop_per_s("bf16") == pytest.approx(989.4e12)
    assert spec.memory_bytes_per_s == 3.35e12
    assert (spec.multiprocessors, spec.l2_bytes) == (132, 50 * 1024**2)
    assert spec.balance("bf16") == pytest.approx(295.3, abs=0.1)
    assert "H100" in spec.source_of("memory_bytes_per_s")


def test_every_number_has_a_source_and_every_name_is_unique():
    names = [_normal(n) for s in all_specs() for n in {_normal(s.name), *map(_normal, s.reported)}]
    assert len(names) == len(set(names))
    for spec in all_specs():
        assert len(spec.source) > 10
        assert set(spec.peaks_flop_per_s) <= PEAKS
        assert all(getattr(spec, field, None) for field in spec.other_sources)
        for dtype, rate in spec.sustained_flop_per_s.items():  # no device keeps up its peak
            assert 0.5 < rate / spec.peaks_flop_per_s[dtype] < 1
            assert spec.source_of("sustained_flop_per_s") != spec.source


def test_families_that_people_use_are_there():
    wanted = ["Tesla P100-SXM2-16GB", "Tesla V100-SXM2-32GB", "Tesla T4", "NVIDIA A100-SXM4-80GB",
              "NVIDIA A10G", "NVIDIA L4", "NVIDIA L40S", "NVIDIA H100 PCIe", "NVIDIA H200",
              "NVIDIA GH200 480GB", "NVIDIA B200", "NVIDIA GB200", "NVIDIA B300",
              "NVIDIA GeForce GTX 1080 Ti", "GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 3090",
              "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090", "NVIDIA RTX A6000",
              "AMD Instinct MI210", "AMD Instinct MI250X", "AMD Instinct MI300X",
              "AMD Instinct MI355X", "Intel(R) Data Center GPU Max 1550", "TPU v4", "TPU v5 lite",
              "TPU v5p", "TPU v6e"]  # fmt: skip
    assert [name for name in wanted if find_spec(name) is None] == []


@pytest.mark.parametrize("spec", all_specs(), ids=lambda s: s.name)
def test_numbers_agree_with_each_other(spec: DeviceSpec):
    """Typing errors show: peaks follow from multiprocessors, clock and rate per cycle."""
    assert 1e11 < (spec.memory_bytes_per_s or 0) < 1e13
    if spec.vendor != "nvidia" or spec.clock_hz is None:
        return
    capability = spec.compute_capability
    rates = FLOP_PER_CYCLE[(10, 0) if capability == (10, 3) else capability]
    per_cycle = spec.multiprocessors * spec.clock_hz
    assert spec.peak_flop_per_s("fp32") == pytest.approx(rates["fp32"] * per_cycle, rel=0.04)
    for dtype, peak in spec.peaks_flop_per_s.items():
        if dtype in rates and dtype != "fp64":
            assert peak <= 2.05 * rates[dtype] * per_cycle, dtype
            assert peak >= 0.45 * rates[dtype] * per_cycle, dtype


def test_an_unknown_device_is_none_and_can_be_derived():
    assert find_spec("NVIDIA Z9000") is None
    assert find_spec(None) is None
    spec = derived_spec("NVIDIA Z9000", (9, 0), 132, 1.83e9, 3.35e12)
    assert spec is not None
    assert spec.peak_flop_per_s("bf16") == pytest.approx(989.4e12, rel=1e-3)
    assert spec.peak_flop_per_s("fp4") is None
    assert derived_spec("NVIDIA Z9000", (99, 0), 132, 1.83e9) is None


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ((304, None, 206_141_652_992, "amd"), "MI300X"),  # as a driver without its name says it
        ((80, "Volta"), "V100S PCIe 32GB"),  # V100s and a TITAN V: the fastest of them
        ((108, "Ampere"), "A100 SXM4 80GB"),
        ((108, "Ampere", 42_297_524_224), "A100 SXM4 40GB"),
        ((80, "Ampere"), "GeForce RTX 3080 Ti"),
        ((80, None), None),  # multiprocessors alone are met by chance
        ((81, "Volta"), None),
        ((132, "Hopper"), "GH200 144GB"),
    ],
)
def test_a_device_without_a_name_is_the_fastest_that_fits(facts, expected):
    found = alike_spec(*facts)
    assert (None if found is None else found.name) == expected
