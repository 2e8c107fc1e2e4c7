import pytest

from pinchpoint.monitor.sample import Sample
from pinchpoint.monitor.sentences import Stretch, device_sentences, host_sentences

BUSY = {"any_kernel_ratio": 1.0, "sm_active_ratio": 0.96, "sm_clock_max_mhz": 1980}


def stretch(*values):
    return Stretch([Sample(i, "0", v) for i, v in enumerate(values)], "the last minute")


def test_a_power_cap_is_named_with_its_share_and_the_clock():
    capped = BUSY | {"event_reasons": 4, "sm_clock_mhz": 1305}
    free = BUSY | {"event_reasons": 0, "sm_clock_mhz": 1980}
    assert device_sentences(stretch(*[capped] * 84, *[free] * 16)) == (
        "power-capped 84 % of the last minute: SM clock 1305 of 1980 MHz",
    )


def test_a_healthy_busy_device_gives_nothing_to_say():
    assert device_sentences(stretch(BUSY | {"event_reasons": 0, "sm_clock_mhz": 1980})) == ()


def test_the_low_clock_of_an_idle_device_is_normal():
    idle = {"any_kernel_ratio": 0.1, "event_reasons": 0x1, "sm_clock_mhz": 345}
    assert device_sentences(stretch(idle)) == (
        "no kernel ran in 90 % of the last minute: the host feeds it too slowly",
    )


def test_what_was_sampled_before_the_program_is_not_its_time():
    before = {"any_kernel_ratio": 0.0, "memory_used_bytes": 2**20}
    working = {"any_kernel_ratio": 0.9, "memory_used_bytes": 2**30}
    assert device_sentences(stretch(*[before] * 9, working)) == ()
    waiting = working | {"any_kernel_ratio": 0.25}
    assert device_sentences(stretch(*[before] * 4, waiting)) == (
        "no kernel ran in 75 % of the time in which a program held its memory:"
        " the host feeds it too slowly",
    )


def test_a_device_that_nothing_uses_is_not_fed_slowly():
    unused = {"any_kernel_ratio": 0.0, "memory_used_bytes": 2**30}
    assert device_sentences(stretch(unused)) == (
        "no kernel ran in the last minute: nothing used it, with 1.0 GiB of its memory in use",
    )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        pytest.param(
            {"any_kernel_ratio": 1.0, "sm_active_ratio": 0.0076},
            "kernels ran 100 % of the last minute, yet only 0.8 % of the multiprocessors had work: "
            "kernels too small to fill the device",
            id="one block",
        ),
        pytest.param(
            BUSY | {"pcie_width": 8, "pcie_width_max": 16},
            "PCIe link at lanes 8 of 16 although the device works",
            id="half the lanes",
        ),
        pytest.param(
            BUSY | {"memory_used_bytes": 79 * 2**30, "memory_total_bytes": 80 * 2**30},
            "device memory 99 % full: 79.0 of 80.0 GiB",
            id="full",
        ),
        pytest.param(
            BUSY | {"other_process_count": 2, "other_memory_bytes": 3 * 2**30},
            "2 other processes are on the device, which hold 3.0 GiB",
            id="not alone",
        ),
        pytest.param(
            BUSY | {"remap_pending": 1},
            "a faulty memory row waits for a reset of the device to be replaced",
            id="pending remap",
        ),
        pytest.param(BUSY | {"temperature_c": 88}, "up to 88 °C in the last minute", id="hot"),
    ],
)
def test_what_is_seen_is_said(values, sentence):
    assert device_sentences(stretch(values)) == (sentence,)


def test_nothing_known_is_nothing_said():
    assert device_sentences(stretch({})) == ()
    assert host_sentences(stretch({})) == ()


def test_a_cpu_quota_is_named():
    assert host_sentences(stretch({"cgroup_throttled_ratio": 0.4})) == (
        "the CPU quota of this container stopped it 40 % of the last minute",
    )
