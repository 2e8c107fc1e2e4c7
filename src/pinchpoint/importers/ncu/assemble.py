"""From launches to a Trace: ``kernel_counters``, and what is not a number beside it."""

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.strangers import wrote
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.importers.ncu.launch import Launch, Launches
from pinchpoint.trace import Device, ExpertNote, Names, ProfiledLaunch, Source, Table, Trace, table

FORMAT = "ncu"
_DEVICES = 1 << 20  # numbers that a machine may have


_NOT_ALLOWED = b"ERR_NVGPUCTRPERM"
_MOST_OF_A_LOG = 1 << 20  # bytes at its end; it names the report there


def _report_of(log: Path) -> str | None:
    """With ``-o``, ncu prints what it profiles, and its numbers go to a report."""
    return wrote(_end_of(log))


def _end_of(log: Path) -> bytes:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _MOST_OF_A_LOG))
        return file.read()


def assemble(path: Path, found: Launches) -> Trace:
    """The trace; UnreadableFile if nothing was profiled."""
    if not found.launches:
        report = _report_of(path)
        if report is None and _NOT_ALLOWED in _end_of(path):
            raise UnreadableFile(
                f"{path}: ncu was not allowed to read counters (ERR_NVGPUCTRPERM)",
                hint="run it as root, or allow it to all: options nvidia"
                " NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then boot again",
            )
        raise UnreadableFile(
            f"{path}: no profiled kernel in it",
            hint=f"give the report that it was written to: {report}"
            if report
            else "profile one: ncu --set detailed -o report python script.py",
        )
    launches = tuple(launch for launch in found.launches if _sound(launch))
    if not launches:
        raise UnreadableFile(
            f"{path}: launches with numbers that no device has", hint="profile them again"
        )
    names = Names()
    counters = _counters(launches, names)
    cut = found.cut + len(found.launches) - len(launches)
    facts = [Fact("rows-cut", cut)] if cut else []
    if bare := sum(not launch.numbers for launch in launches):
        facts.append(Fact("counters-missing", bare))
    processes = {(launch.process, launch.process_id) for launch in launches}
    if len(processes) > 1:
        facts.append(Fact("processes-several", len(processes)))
    devices = {launch.device for launch in launches}
    if len(devices) > 1:
        facts.append(Fact("devices-several", len(devices)))
    return Trace(
        source=Source(
            str(path),
            FORMAT,
            path.stat().st_size,
            truncated=bool(cut),
            recorder="ncu",
            recorder_version=found.version,
            producer=f"ncu {found.version}" if found.version else None,
        ),
        devices=_devices(launches),
        profiled_launches=tuple(_about(launch) for launch in launches),
        expert_notes=tuple(_notes(launches)),
        kernel_counters=counters,
        health=health_table(facts, names),
        names=names.freeze(),
    )


def _sound(launch: Launch) -> bool:
    """Whether the numbers of a launch are ones that a device can have."""
    sizes = (*(launch.grid or ()), *(launch.block or ()), launch.context or 0)
    return 0 <= launch.device < _DEVICES and all(0 <= size < 2**32 for size in sizes)


def _counters(launches: tuple[Launch, ...], names: Names) -> Table:
    launch, name, metric, unit, value, device = [], [], [], [], [], []
    for i, each in enumerate(launches):
        count = len(each.numbers)
        launch += [i] * count
        name += [names.id_of(each.name)] * count
        device += [each.device] * count
        metric += names.ids_of(each.numbers)
        unit += [names.id_of(u) if u else -1 for _, u in each.numbers.values()]
        value += [v for v, _ in each.numbers.values()]
    units = np.array(unit, np.int32)
    return table(
        "kernel_counters",
        {
            "launch": np.array(launch, np.int64),
            "name": np.array(name, np.int32),
            "metric": np.array(metric, np.int32),
            "unit": units,
            "value": np.array(value, np.float64),
            "device": np.array(device, np.int32),
        },
        {"unit": units < 0},
    )


def _about(launch: Launch) -> ProfiledLaunch:
    return ProfiledLaunch(
        name=launch.name,
        grid=launch.grid,
        block=launch.block,
        context=launch.context,
        stream=launch.stream,
        device=launch.device,
        texts=MappingProxyType(dict(launch.texts)),
    )


def _notes(launches: tuple[Launch, ...]) -> Iterator[ExpertNote]:
    for i, launch in enumerate(launches):
        for said in launch.rules:
            yield ExpertNote(
                launch=i,
                rule=said.rule,
                section=said.section,
                kind=said.kind,
                text=said.text,
                speedup_kind=said.speedup_kind,
                speedup_percent=said.speedup_percent,
            )


def _devices(launches: tuple[Launch, ...]) -> tuple[Device, ...]:
    devices: dict[int, Device] = {}
    for launch in launches:
        if launch.device in devices:
            continue
        devices[launch.device] = Device(
            launch.device,
            launch.texts.get("device__attribute_display_name"),
            _whole(launch, "device__attribute_total_memory"),
            _whole(launch, "device__attribute_multiprocessor_count", "launch__sm_count"),
            launch.capability,
            "nvidia",
        )
    return tuple(devices[number] for number in sorted(devices))


def _whole(launch: Launch, *metrics: str) -> int | None:
    for metric in metrics:
        if metric in launch.numbers and 0 < launch.numbers[metric][0] < 2**53:
            return int(launch.numbers[metric][0])
    return None
