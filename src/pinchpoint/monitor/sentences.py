"""What a stretch of samples means, in sentences with their figures; most important first."""

from collections.abc import Sequence
from statistics import mean, median

from pinchpoint.frozen import dataclass
from pinchpoint.monitor import reasons
from pinchpoint.monitor.sample import Sample

HELD_DOWN_RATIO = 0.05  # a device held down for less of the time hardly shows in a step
BUSY_KERNEL_RATIO = 0.5  # below, clocks and activity say little: the device had no work
EMPTY_KERNELS_GAP = 0.5  # "time with any kernel" this far above "SM active": tiny kernels
STARVED_RATIO = 0.5  # the textbook mark for a device that waits for its host
UNUSED_RATIO = 0.005  # rounds to 0 %: a device that is given nothing is not fed slowly
NOTHING_HELD = 0.05  # GiB; what a driver keeps, and rounds to 0.0
NEARLY_FULL_RATIO = 0.95  # the next batch that is a little larger fails
HOT_C = 83  # where data-centre devices begin to slow down, as a warning before the driver does
GIB = 1024.0**3


@dataclass(frozen=True)
class Stretch:
    """Samples of one device, and what to call the time they cover: ``the last minute``."""

    samples: Sequence[Sample]
    called: str

    def known(self, name: str) -> list[float]:
        """The values that were seen."""
        return [s.values[name] for s in self.samples if name in s.values]

    def last(self, name: str) -> float | None:
        """The newest value."""
        return next((s.values[name] for s in reversed(self.samples) if name in s.values), None)

    def mean(self, name: str) -> float | None:
        """The mean, None if never seen."""
        values = self.known(name)
        return mean(values) if values else None


def device_sentences(stretch: Stretch) -> tuple[str, ...]:
    """What is worth saying about a device; empty if it works hard and nothing holds it down."""
    found = [
        *_hardware(stretch),
        *_held_down(stretch),
        *_logged_as_held_down(stretch),
        *_work(stretch),
        *_link(stretch),
        *_memory(stretch),
        *_others(stretch),
    ]
    return tuple(found)


def host_sentences(stretch: Stretch) -> tuple[str, ...]:
    """What is worth saying about the host."""
    found = []
    throttled = stretch.mean("cgroup_throttled_ratio")
    if throttled is not None and throttled >= HELD_DOWN_RATIO:
        found.append(
            f"the CPU quota of this container stopped it {_percent(throttled)} of {stretch.called}"
        )
    pressure = stretch.mean("cpu_pressure_ratio")
    if pressure is not None and pressure >= BUSY_KERNEL_RATIO:
        found.append(f"tasks waited for a core {_percent(pressure)} of {stretch.called}")
    used, total = stretch.last("host_memory_used_bytes"), stretch.last("host_memory_total_bytes")
    if used is not None and total and used / total >= NEARLY_FULL_RATIO:
        found.append(
            f"host memory {_percent(used / total)} full: {used / GIB:.1f} of {total / GIB:.1f} GiB"
        )
    return tuple(found)


def _held_down(stretch: Stretch) -> list[str]:
    """Reasons that lowered the clock while the device had work."""
    busy = [
        s
        for s in stretch.samples
        if "event_reasons" in s.values
        and s.values.get("any_kernel_ratio", 1.0) >= BUSY_KERNEL_RATIO
    ]
    found = []
    for bit, words in reasons.WORDS.items():
        held = [s for s in busy if int(s.values["event_reasons"]) & bit & reasons.HOLDS_DOWN]
        share = len(held) / len(stretch.samples) if held else 0.0
        if share < HELD_DOWN_RATIO:
            continue
        clocks = [s.values["sm_clock_mhz"] for s in held if "sm_clock_mhz" in s.values]
        highest = stretch.last("sm_clock_max_mhz")
        clock = f": SM clock {median(clocks):.0f}" if clocks else ""
        clock += f" of {highest:.0f} MHz" if clocks and highest else " MHz" if clocks else ""
        found.append(f"{words} {_percent(share)} of {stretch.called}{clock}")
    return found


def _logged_as_held_down(stretch: Stretch) -> list[str]:
    """The same from logs that give shares of time in place of reasons (nvidia-smi dmon)."""
    clock = stretch.known("sm_clock_mhz")
    found = []
    for name, words in (
        ("power_capped_ratio", "power-capped"),
        ("thermal_slowdown_ratio", "slowed for heat"),
    ):
        share = stretch.mean(name)
        if share is not None and share >= HELD_DOWN_RATIO:
            low = f": SM clock down to {min(clock):.0f} MHz" if clock else ""
            found.append(f"{words} {_percent(share)} of {stretch.called}{low}")
    return found


def _work(stretch: Stretch) -> list[str]:
    kernel, active = stretch.mean("any_kernel_ratio"), stretch.mean("sm_active_ratio")
    if kernel is None:
        return []
    if kernel < UNUSED_RATIO:
        held = stretch.last("memory_used_bytes")
        holds = (
            ""
            if held is None or held < NOTHING_HELD * GIB
            else f", with {held / GIB:.1f} GiB of its memory in use"
        )
        return [f"no kernel ran in {stretch.called}: nothing used it{holds}"]
    held_by_a_program = _while_held(stretch)
    fed = held_by_a_program.mean("any_kernel_ratio")
    if fed is not None and fed < STARVED_RATIO:
        return [
            f"no kernel ran in {_percent(1 - fed)} of {held_by_a_program.called}: "
            "the host feeds it too slowly"
        ]
    if active is not None and kernel - active >= EMPTY_KERNELS_GAP:
        return [
            f"kernels ran {_percent(kernel)} of {stretch.called}, yet only {_percent(active, 1)} "
            "of the multiprocessors had work: kernels too small to fill the device"
        ]
    return []


def _while_held(stretch: Stretch) -> Stretch:
    """The samples in which a program held memory of the device, where others show that none did:
    a log may begin before the program, and go on behind it."""
    name, least = "memory_used_bytes", NOTHING_HELD * GIB
    held = [s for s in stretch.samples if s.values.get(name, least) >= least]
    if not held or len(held) == len(stretch.samples):
        return stretch
    return Stretch(held, "the time in which a program held its memory")


def _link(stretch: Stretch) -> list[str]:
    """Only the best state of a stretch counts: links rest in a lower one when there is no work."""
    found = []
    for name, words in (("pcie_generation", "generation"), ("pcie_width", "lanes")):
        best, most = max(stretch.known(name), default=None), stretch.last(f"{name}_max")
        busy = (stretch.mean("any_kernel_ratio") or 0.0) >= BUSY_KERNEL_RATIO
        if busy and best is not None and most is not None and best < most:
            found.append(f"PCIe link at {words} {best:.0f} of {most:.0f} although the device works")
    return found


def _memory(stretch: Stretch) -> list[str]:
    used, total = stretch.last("memory_used_bytes"), stretch.last("memory_total_bytes")
    if used is None or not total or used / total < NEARLY_FULL_RATIO:
        return []
    return [
        f"device memory {_percent(used / total)} full: {used / GIB:.1f} of {total / GIB:.1f} GiB"
    ]


def _others(stretch: Stretch) -> list[str]:
    count, held = stretch.last("other_process_count"), stretch.last("other_memory_bytes")
    if not count:
        return []
    size = "" if held is None else f", which hold {held / GIB:.1f} GiB"
    return [f"{count:.0f} other processes are on the device{size}"]


def _hardware(stretch: Stretch) -> list[str]:
    found = []
    if stretch.last("ecc_uncorrected_count"):
        found.append(f"{stretch.last('ecc_uncorrected_count'):.0f} uncorrected memory errors")
    if stretch.last("remap_failed"):
        found.append("a faulty memory row could not be replaced: the device needs service")
    elif stretch.last("remap_pending"):
        found.append("a faulty memory row waits for a reset of the device to be replaced")
    hottest = max(stretch.known("temperature_c"), default=0.0)
    if hottest >= HOT_C:
        found.append(f"up to {hottest:.0f} °C in {stretch.called}")
    return found


def _percent(ratio: float, digits: int = 0) -> str:
    return f"{100 * ratio:.{digits}f} %"
