"""The host: processor, memory, limits, virtualisation, load."""

import hashlib
import os
import platform
import re
from pathlib import Path
from typing import Any

from pinchpoint.monitor.environment.facts import Facts, Unreadable, file_number, file_text

_CPU = Path("/sys/devices/system/cpu")
_CGROUPS = Path("/sys/fs/cgroup")


def host() -> tuple[dict[str, Any], dict[str, str]]:
    """Facts about this host that can change a timing; each null has a reason."""
    facts = Facts("host")
    facts.read("cpu_model", cpu_model)
    facts.read("cpu_features", _cpu_features)
    facts.read("cpus_logical", os.cpu_count)
    facts.read("cpus_physical", _physical_cpus)
    facts.read("sockets", _sockets)
    facts.read("smt", lambda: file_text(_CPU / "smt/active") == "1")
    facts.read("microcode", lambda: _cpuinfo("microcode"))
    facts.read("governor", lambda: file_text(_CPU / "cpu0/cpufreq/scaling_governor"))
    facts.read("frequency_driver", lambda: file_text(_CPU / "cpu0/cpufreq/scaling_driver"))
    facts.read("turbo", _turbo)
    facts.read("min_khz", lambda: file_number(_CPU / "cpu0/cpufreq/scaling_min_freq"))
    facts.read("max_khz", lambda: file_number(_CPU / "cpu0/cpufreq/scaling_max_freq"))
    facts.read("numa_nodes", _numa_nodes)
    facts.read("affinity", lambda: _ranges(sorted(os.sched_getaffinity(0))))
    facts.read("memory_nodes", lambda: _status("Mems_allowed_list"))
    facts.read("huge_pages", _huge_pages)
    facts.read("kernel", platform.release)
    facts.read("mitigations_sha256", _mitigations)
    _limits(facts)
    _memory_and_load(facts)
    facts.read("virtual", _virtual)
    facts.read("instance_type", lambda: file_text("/sys/class/dmi/id/product_name"))
    facts.read("container", _container)
    facts.read("image_digest", _image)
    facts.put("host_sha256", hashlib.sha256(platform.node().encode()).hexdigest()[:16])
    return facts.values, facts.unknown


def _limits(facts: Facts) -> None:
    """What the control group allows, and how often it has held this process back."""
    facts.read("cgroup_cpu_max", lambda: file_text(_own_cgroup() / "cpu.max"))
    facts.read("cgroup_cpuset", lambda: file_text(_own_cgroup() / "cpuset.cpus.effective"))
    facts.read("cgroup_memory_max", lambda: file_text(_own_cgroup() / "memory.max"))
    facts.read("cgroup_throttled_us", cgroup_throttled_us)


def _own_cgroup() -> Path:
    """The folder of this process's control group (version 2)."""
    match = re.search(r"^0::/(.*)$", file_text("/proc/self/cgroup"), re.M)
    if match is None:
        raise Unreadable("no version 2 control group")
    return _CGROUPS / match[1]


def cgroup_cpus() -> float | None:
    """CPUs that the control group's quota is worth; None where there is none."""
    try:
        quota, period = file_text(_own_cgroup() / "cpu.max").split()
    except (Unreadable, OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def cgroup_throttled_us() -> int:
    """Time that the control group has held its processes back so far, in microseconds."""
    match = re.search(r"^throttled_usec (\d+)", file_text(_own_cgroup() / "cpu.stat"), re.M)
    if match is None:
        raise Unreadable("cpu.stat of the control group has no throttled_usec")
    return int(match[1])


def _memory_and_load(facts: Facts) -> None:
    import psutil

    facts.read("memory_bytes", lambda: psutil.virtual_memory().total)
    facts.read("swap_used_bytes", lambda: psutil.swap_memory().used)
    facts.read("load_1min", lambda: round(os.getloadavg()[0], 2))


def _cpuinfo(key: str) -> str | None:
    match = re.search(rf"^{key}\s*:\s*(.+)$", file_text("/proc/cpuinfo"), re.M)
    return match[1].strip() if match else None


def cpu_model() -> str | None:
    """The processor's name, else its architecture."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


# As Linux names them on x86 and ARM: what decides how fast products of which type are.
_FEATURES = (
    *("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8", "amx_fp16"),
    *("asimd", "sve", "bf16", "i8mm", "sme"),
)


def _cpu_features() -> list[str]:
    said = _cpuinfo("flags") or _cpuinfo("Features")
    if said is None:
        raise Unreadable("/proc/cpuinfo lists no features")
    there = set(said.split())
    return [name for name in _FEATURES if name in there]


def _physical_cpus() -> int | None:
    import psutil

    return psutil.cpu_count(logical=False)


def _sockets() -> int:
    ids = set(re.findall(r"^physical id\s*:\s*(\d+)$", file_text("/proc/cpuinfo"), re.M))
    if not ids:
        raise Unreadable("/proc/cpuinfo does not number the sockets")
    return len(ids)


def _turbo() -> bool:
    intel = _CPU / "intel_pstate/no_turbo"
    if intel.exists():
        return file_text(intel) == "0"
    return file_text(_CPU / "cpufreq/boost") == "1"


def _numa_nodes() -> int:
    nodes = list(Path("/sys/devices/system/node").glob("node[0-9]*"))
    if not nodes:
        raise Unreadable("the kernel shows no NUMA nodes")
    return len(nodes)


def _ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] as "0-2,5"."""
    groups: list[list[int]] = []
    for n in numbers:
        if groups and n == groups[-1][-1] + 1:
            groups[-1].append(n)
        else:
            groups.append([n])
    return ",".join(f"{g[0]}-{g[-1]}" if len(g) > 1 else str(g[0]) for g in groups)


def _status(key: str) -> str | None:
    match = re.search(rf"^{key}:\s*(.+)$", file_text("/proc/self/status"), re.M)
    return match[1].strip() if match else None


def _huge_pages() -> str | None:
    text = file_text("/sys/kernel/mm/transparent_hugepage/enabled")
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else None


def _mitigations() -> str:
    files = sorted((_CPU / "vulnerabilities").glob("*"))
    if not files:
        raise Unreadable("the kernel lists no mitigations")
    text = "\n".join(f"{f.name}={file_text(f)}" for f in files)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _virtual() -> bool:
    return re.search(r"^flags\s*:.*\bhypervisor\b", file_text("/proc/cpuinfo"), re.M) is not None


def _container() -> str:
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if Path("/.dockerenv").exists():
        return "docker"
    return "podman" if Path("/run/.containerenv").exists() else "none seen"


def _image() -> str:
    digest = os.environ.get("PINCHPOINT_IMAGE_DIGEST")
    if not digest:
        raise Unreadable("a container cannot see its own digest; set PINCHPOINT_IMAGE_DIGEST")
    return digest
