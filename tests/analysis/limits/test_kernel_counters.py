from pathlib import Path

import pytest

import pinchpoint as pp
from pinchpoint.analysis.limits.counter_facts import kernel_facts
from pinchpoint.analysis.limits.counters import kernel_launches, scale_of

DATA = Path(__file__).parents[2] / "data/ncu"


@pytest.mark.parametrize(
    ("unit", "scale"),
    [
        ("ns", 1), ("nsecond", 1), ("us", 1e3), ("usecond", 1e3), ("ms", 1e6), ("second", 1e9),
        ("byte", 1), ("Kbyte", 1e3), ("Gbyte", 1e9), ("byte/s", 1), ("Tbyte/s", 1e12),
        ("Gbyte/second", 1e9), ("hz", 1), ("Ghz", 1e9), ("cycle/nsecond", 1e9),
        ("Kbyte/block", 1e3), ("sector/ns", 1e9), ("%", 1), ("", 1),
        ("register/thread", 1), ("furlong", 1),
    ],
)  # fmt: skip
def test_units_of_every_version(unit, scale):
    assert scale_of(unit) == scale


def facts_of(page):
    return [kernel_facts(launch) for launch in kernel_launches(pp.load(DATA / page))]


def test_scaled_and_base_units_give_the_same_facts():
    scaled, base = facts_of("kernels.raw.csv.gz"), facts_of("kernels.raw.base.csv.gz")
    # scaled values keep six decimals of the largest: all but the tiny launch can be compared
    for one, other in [p for p in zip(scaled, base, strict=True) if p[1].duration_ns > 10_000]:
        assert one.duration_ns == pytest.approx(other.duration_ns, rel=1e-3)
        assert one.dram_bytes == pytest.approx(other.dram_bytes, rel=1e-3)
        assert one.sm_clock_hz == pytest.approx(other.sm_clock_hz, rel=1e-3)
        assert one.l2_peak_bytes_per_s == pytest.approx(other.l2_peak_bytes_per_s, rel=1e-3)


def test_flops_of_kernels_of_known_work():
    facts = facts_of("kernels.raw.base.csv.gz")
    assert facts[0].flops == {"bf16": 2 * 4096**3}
    assert facts[1].flops["fp32"] == pytest.approx(2 * 4096**3, rel=1e-3)
    assert facts[2].flops["fp32"] == pytest.approx(64 * 1024**2, rel=1e-4)  # one multiplication
    assert facts[8].total_flops == 0
    assert facts_of("kernels.details.csv.gz")[0].flops is None


def test_facts_of_an_elementwise_kernel():
    fact = facts_of("kernels.raw.base.csv.gz")[2]
    assert fact.dram_bytes == 268454144 + 247818496
    assert fact.dram_peak_bytes_per_s == pytest.approx(3.352e12, rel=1e-3)
    assert fact.l2_peak_bytes_per_s == pytest.approx(8.75e12, rel=1e-2)
    assert fact.waves == 31.03
    assert fact.limiters == ("registers", "warps of a block")
    assert next(iter(fact.stalls)) == "long_scoreboard"
    assert fact.stall_ratio("long_scoreboard") == pytest.approx(0.757, abs=1e-3)
    assert facts_of("kernels.raw.base.csv.gz")[8].excess_sectors_ratio == pytest.approx(
        7 / 9, rel=1e-3
    )


def test_busy_tensor_cores_are_read_from_the_pipe_not_from_instructions():
    assert facts_of("kernels.raw.base.csv.gz")[0].tensor_percent == pytest.approx(95.26)
