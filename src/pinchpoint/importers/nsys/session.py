"""What an nsys recording says about itself: versions, devices, threads, options, warnings."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.database import Database
from pinchpoint.importers.nsys.database import Strings
from pinchpoint.trace import Device

# The only settings that are kept: the capture's metadata also holds the whole environment, the
# command line, host and user names, which nobody wants to publish with a report.
_KEPT_SETTINGS = ("CUDA_GRAPH_TRACE_OPTIONS:MODE", "CAPTURE_EVENT_TYPE", "RATE_HZ",
                  "OS_RUNTIME_OPTIONS:DURATION_THRESHOLD_NS")  # fmt: skip
# What to do about a warning of nsys, where that is known: what it says, and the next step. Its own
# text may end in several lines of advice, of which the first says what was not recorded.
_NEXT_STEPS = (
    (
        r"driver version.* is not supported by this build",
        "install an Nsight Systems that is newer than the driver, or record with pinchpoint run",
    ),
    (
        r"^No CUDA events collected",
        "let nsys start the program itself (nsys profile --trace=cuda,nvtx,osrt COMMAND); a program"
        " that uses no CUDA is recorded by pinchpoint run COMMAND",
    ),
    (
        r"^Not all CUDA events might have been collected",
        "let the program end by itself, after torch.cuda.synchronize()",
    ),
    (
        r"^No NVTX events collected",
        "mark steps with torch.cuda.nvtx.range_push, and record with --trace=cuda,nvtx,osrt",
    ),
    (
        r"CUPTI.*(privilege|permission)|ERR_NVGPUCTRPERM",
        "run as root, or let the driver allow profiling to all users"
        " (NVreg_RestrictProfilingToAdminUsers=0)",
    ),
)


def by_weight(text: str) -> int:
    """Orders warnings: first those of which it is known what to do, the gravest of them first."""
    found = (i for i, (known, _) in enumerate(_NEXT_STEPS) if re.search(known, text, re.IGNORECASE))
    return next(found, len(_NEXT_STEPS))


def with_next_step(text: str) -> str:
    """The first line of a warning, and what to do about it where that is known."""
    said = text.strip().split("\n", 1)[0].rstrip()
    known = by_weight(text)
    return said if known == len(_NEXT_STEPS) else f"{said.rstrip('.')} ({_NEXT_STEPS[known][1]})"


_WARNINGS = (2, 3)  # severities of DIAGNOSTIC_EVENT: warning, error; 4 is verbose


@dataclass(frozen=True)
class NsysSession:
    """Facts about the recording."""

    version: str | None  # of nsys
    schema: str | None
    started_utc_ns: int | None  # Unix time of time zero
    settings: Mapping[str, tuple[str, ...]]
    devices: tuple[Device, ...]
    device_numbers: Mapping[tuple[int, int], int]  # (pid, CUDA ordinal) -> device number
    warnings: tuple[tuple[int | None, str], ...]  # global process id, where nsys names it; text


def read_session(database: Database) -> NsysSession:
    """All facts that the file has; what it lacks is None or empty."""
    about = dict(database.rows("META_DATA_EXPORT", ("name", "value")))
    about = about or dict(database.rows("EXPORT_META_DATA", ("name", "value")))
    settings: dict[str, list[str]] = {}
    for name, value in database.rows("META_DATA_CAPTURE", ("name", "value")):
        if name in _KEPT_SETTINGS:
            settings.setdefault(name, []).append(str(value))
    started = list(database.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)))
    version = about.get("EXPORT_PRODUCT_VERSION")
    return NsysSession(
        version=str(version) if version else None,
        schema=about.get("EXPORT_SCHEMA_VERSION"),
        started_utc_ns=next((t for (t,) in started if isinstance(t, int)), None),
        settings={k: tuple(v) for k, v in settings.items()},
        devices=_devices(database),
        device_numbers=_device_numbers(database),
        warnings=tuple(_warnings(database)),
    )


def _warnings(database: Database) -> Iterator[tuple[int | None, str]]:
    columns = ("severity", "text")
    of_processes = database.has("DIAGNOSTIC_EVENT", "globalPid")
    for severity, text, *process in database.rows(
        "DIAGNOSTIC_EVENT", (*columns, "globalPid") if of_processes else columns
    ):
        if severity in _WARNINGS:
            yield process[0] if process and isinstance(process[0], int) else None, str(text)


_DEVICE_TABLES = (
    ("TARGET_INFO_GPU", "id"),
    ("TARGET_INFO_CUDA_GPU", "id"),
    ("TARGET_INFO_CUDA_GPU", "deviceId"),
    ("TARGET_INFO_GPU", "deviceId"),
)
_COLUMNS_OF_2021 = {
    "deviceId": "id",
    "globalMemorySize": "totalMemory",
    "numMultiprocessors": "smCount",
    "computeCapabilityMajor": "computeMajor",
    "computeCapabilityMinor": "computeMinor",
}


def _devices(database: Database) -> tuple[Device, ...]:
    table = next((t for t, column in _DEVICE_TABLES if database.has(t, column)), None)
    if table is None:
        return ()
    columns = database.columns[table]
    devices = []
    for row in database.rows(table, columns):
        fact = dict(zip(columns, row, strict=True))
        fact |= {new: fact[old] for old, new in _COLUMNS_OF_2021.items() if old in fact}
        number = _number(fact, "id")
        if number is None:
            continue
        major, minor = _number(fact, "computeMajor"), _number(fact, "computeMinor")
        devices.append(
            Device(
                number,
                fact["name"] if isinstance(fact.get("name"), str) else None,
                _number(fact, "totalMemory"),
                _number(fact, "smCount"),
                None if major is None or minor is None else (major, minor),
                "nvidia",
                clock_hz=_number(fact, "clockRate") or None,
                memory_bytes_per_s=_number(fact, "memoryBandwidth") or None,
                l2_bytes=_number(fact, "l2CacheSize") or None,
            )
        )
    return tuple(sorted(devices, key=lambda d: d.number))


def _number(fact: Mapping[str, Any], column: str) -> int | None:
    value = fact.get(column)
    return value if isinstance(value, int) and value >= 0 else None


def _device_numbers(database: Database) -> dict[tuple[int, int], int]:
    """CUDA_VISIBLE_DEVICES renumbers devices in each process; this undoes it where recorded."""
    rows = database.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
    return {
        (pid, cuda): gpu
        for gpu, cuda, pid in rows
        if all(isinstance(v, int) and 0 <= v < 2**31 for v in (gpu, cuda, pid))
    }


def thread_labels(database: Database, strings: Strings) -> dict[object, str | None]:
    """Names of threads by global thread id."""
    labels: dict[object, str | None] = {}
    for tid, name in database.rows("ThreadNames", ("globalTid", "nameId")):
        labels.setdefault(tid, strings.get(name))
    return labels
