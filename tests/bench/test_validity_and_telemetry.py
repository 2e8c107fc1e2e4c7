import pytest

from pinchpoint.bench.metrics import Gpu, WarmUpInfo
from pinchpoint.bench.run.telemetry import Window, devices_over
from pinchpoint.bench.run.validity import HostChange, invalid_reasons
from pinchpoint.monitor.reasons import HARDWARE_THERMAL, POWER_CAP
from pinchpoint.monitor.sample import Sample

SECOND = 1_000_000_000


def _samples(**columns):
    count = len(next(iter(columns.values())))
    return [
        Sample(i * SECOND, "0", {name: float(values[i]) for name, values in columns.items()})
        for i in range(count)
    ]


def test_only_the_timed_window_counts():
    samples = _samples(
        sm_clock_mhz=[300, 1980, 1755, 1980, 300],
        power_w=[100, 600, 700, 600, 100],
        event_reasons=[1, 0, POWER_CAP, 0, 1],
    )
    [gpu] = devices_over(samples, Window(SECOND, 3 * SECOND))
    assert gpu.sm_clock_mhz == {"median": 1980.0, "min": 1755.0}
    assert gpu.power_w == {"mean": pytest.approx(633.33, abs=0.01)}
    assert gpu.energy_j == 1300.0
    assert gpu.power_cap_ratio == pytest.approx(1 / 3)
    assert gpu.slowdown_ratio == 0.0
    assert gpu.temperature_c is None


def test_no_samples_in_the_window():
    assert devices_over(_samples(power_w=[1]), Window(5 * SECOND, 6 * SECOND)) is None


def test_heat_in_the_window():
    [gpu] = devices_over(_samples(event_reasons=[HARDWARE_THERMAL] * 2), Window(0, 9 * SECOND))
    assert gpu.slowdown_ratio == 1.0
    assert "slowed by heat" in invalid_reasons(gpus=(gpu,))[0]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        pytest.param({"warmup": WarmUpInfo(policy="x", converged=False)}, "steady", id="drift"),
        pytest.param({"recompiles": 2}, "2 steps of the timed part compiled", id="compile"),
        pytest.param({"allocator_retries": 1}, "allocator", id="allocator"),
        pytest.param({"gpus": (Gpu(device="0", other_process_count=1),)}, "others", id="neighbour"),
        pytest.param({"host": HostChange(1 << 21, None)}, "2 MiB were swapped in", id="swap"),
        pytest.param({"host": HostChange(0, 500_000), "duration_s": 10.0}, "CPU quota", id="quota"),
    ],
)
def test_each_disturbance_is_named(facts, said):
    [reason] = invalid_reasons(**facts)
    assert said in reason


def test_an_undisturbed_run():
    assert (
        invalid_reasons(
            warmup=WarmUpInfo(policy="fixed"),
            gpus=(Gpu(device="0", slowdown_ratio=0.005, other_process_count=0),),
            host=HostChange(0, 50_000),
            duration_s=10.0,
        )
        == ()
    )
