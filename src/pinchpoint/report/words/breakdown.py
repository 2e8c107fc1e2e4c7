"""Where a step goes: which parts are shown, under which title, and how busy devices were."""

from pinchpoint.report.documents.clock import AS_RECORDED, WITHOUT_PROFILER
from pinchpoint.report.documents.report import PartOfStep, Report
from pinchpoint.report.quantity import percent
from pinchpoint.report.words.steps import counts_the_mean

SMALL_PART_RATIO = 0.01  # parts below this share of the step are summed in the overview
MOST_PARTS = 10  # rows of the overview; a longer list is no overview
WITHIN_RANGES = "within ranges, where nothing else was recorded"
MOST_DEVICES = 8  # of one process, in the terminal: one host's
MOST_KINDS_OF_WORK = 4  # of the device, in one sentence


def breakdown_title(report: Report) -> str:
    """What the breakdown is of: the step that gains count from."""
    if report.run is not None and report.run.alone:
        return "Where the run goes"
    what = "the time" if report.steps.how == "none" else "a step"
    return f"Where {what} goes{', on average' * counts_the_mean(report)}, {_clock(report)}"


def _clock(report: Report) -> str:
    return AS_RECORDED if report.steps.unprofiled_ns_predicted is None else WITHOUT_PROFILER


def part_ns(part: PartOfStep) -> int:
    """How much of the step that gains count from a part takes."""
    known = (part.base_ns_per_step, part.unprofiled_ns_per_step)
    return next((ns for ns in known if ns is not None), part.ns_per_step)


def all_parts(report: Report) -> tuple[tuple[PartOfStep, int], ...]:
    """The parts of the step, longest first; they add up to what gains count from."""
    timed = ((part, part_ns(part)) for part in report.breakdown)
    return tuple(sorted((t for t in timed if t[1]), key=lambda t: -t[1]))


def top_parts(report: Report) -> tuple[tuple[str, int], ...]:
    """Label and time of the largest parts of the step; the rest summed. Adds up to the step."""
    parts = all_parts(report)
    total = sum(ns for _, ns in parts)
    shown = [(p.label, ns) for p, ns in parts if ns >= SMALL_PART_RATIO * total][:MOST_PARTS]
    rest = [(p.label, ns) for p, ns in parts[len(shown) :]]
    if len(rest) > 1:
        rest = [(f"the other {len(rest)} parts", sum(ns for _, ns in rest))]
    return tuple(shown + rest)


def device_work(report: Report) -> str | None:
    """How busy the device was and what its own time of a step consists of; None without one."""
    device = report.device
    if device is None or device.idle_ratio is None:
        return None
    said = f"{_idle_share(report, device.idle_ratio)}{_each_device(report)}"
    parts = [(p.label, ns) for p, ns in all_parts(report) if p.group in ("device", "exposed")]
    total = sum(ns for _, ns in parts)
    large = [(label, ns / total) for label, ns in parts if ns >= SMALL_PART_RATIO * total]
    shown = [f"{label} {100 * ratio:.0f} %" for label, ratio in large[:MOST_KINDS_OF_WORK]]
    more = len(parts) - len(shown)
    rest = f"; {more} more" if more else ""
    return f"{said}. Its work: {'; '.join(shown)}{rest}." if shown else f"{said}."


def _idle_share(report: Report, of_recording: float) -> str:
    """How much of a step no device works, on the clock of its parts."""
    parts = all_parts(report)
    whole = sum(ns for _, ns in parts)
    idle_is = "the device is idle" if len(report.devices) < 2 else "all devices at once are idle"
    if not whole:
        said = f"{idle_is[:1].upper()}{idle_is[1:]} {percent(of_recording)} % of the time"
        return f"{said} from its first operation to its last, as recorded"
    idle = sum(ns for part, ns in parts if part.group == "idle")
    what = "step" if report.steps.how != "none" else "recording"
    if outside := sum(ns for part, ns in parts if part.group == "outside"):
        whole, what = whole - outside, f"{what} as far as it was recorded"
    share = f"{percent(idle / (whole or 1))} % of the {what}"
    return f"For all reasons together, {idle_is} {share}, {_clock(report)}"


def _each_device(report: Report) -> str:
    """Each device alone, where there are several; of the recording from its first operation."""
    if len(report.devices) < 2:
        return ""
    of = "the recording" if report.steps.how != "none" else "it"
    shown = report.devices[:MOST_DEVICES]
    said = [
        f"device {d.device} {percent(d.idle_ratio)} %" for d in shown if d.idle_ratio is not None
    ]
    more = len(report.devices) - len(shown)
    said += [f"{more} more devices"] if more else []
    return f". Each alone is idle of {of}: {', '.join(said)}" if said else ""
