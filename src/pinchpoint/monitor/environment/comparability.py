"""Which differences between two environments forbid a comparison, and which only warn.

A field that is unknown on either side is a warning, never "equal".
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any, Literal

from pinchpoint.frozen import dataclass

Action = Literal["refuse", "refuse stored", "warn"]

# "refuse": never comparable. "refuse stored": not comparable with a stored baseline; inside one
# interleaved session the field is the same for both, unless it is the declared knob.
_FIELDS: tuple[tuple[str, str, Action], ...] = (
    ("gpu.count", "number of GPUs", "refuse"),
    ("gpu.devices.*.name", "GPU model", "refuse"),
    ("gpu.devices.*.mig", "MIG mode", "refuse"),
    ("gpu.devices.*.power_limit_w", "GPU power limit", "refuse"),
    ("gpu.devices.*.ecc", "GPU ECC", "refuse"),
    ("gpu.devices.*.application_sm_mhz", "application clock", "refuse"),
    ("host.cpu_model", "CPU model", "refuse"),
    ("variables.values.CUDA_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING", "refuse"),
    ("gpu.driver", "driver", "refuse stored"),
    ("gpu.cuda_driver", "CUDA of the driver", "refuse stored"),
    ("software.python", "Python", "refuse stored"),
    ("software.distributions", "installed versions", "refuse stored"),
    ("software.torch_build", "torch build", "refuse stored"),
    ("switches.torch", "torch of the program", "refuse stored"),
    ("switches.float32_matmul_precision", "TF32 switch", "refuse stored"),
    ("switches.cudnn_benchmark", "cudnn.benchmark", "refuse stored"),
    ("switches.torch_num_threads", "torch threads", "refuse stored"),
    ("variables.values.PYTORCH_CUDA_ALLOC_CONF", "allocator setting", "refuse stored"),
    ("variables.values.PYTORCH_ALLOC_CONF", "allocator setting", "refuse stored"),
    ("variables.values.OMP_NUM_THREADS", "OMP_NUM_THREADS", "refuse stored"),
    ("variables.values.NVIDIA_TF32_OVERRIDE", "NVIDIA_TF32_OVERRIDE", "refuse stored"),
    ("host.governor", "CPU governor", "refuse stored"),
    ("host.cgroup_cpu_max", "CPU quota of the control group", "refuse stored"),
    ("host.cpus_logical", "number of CPUs", "refuse stored"),
    ("host.affinity", "CPUs that may be used", "refuse stored"),
    ("host.image_digest", "container image", "refuse stored"),
    ("host.host_sha256", "host", "warn"),
    ("gpu.devices.*.uuid", "GPU, same model", "warn"),
    ("gpu.devices.*.pcie_gen", "PCIe link now", "warn"),
    ("gpu.devices.*.pcie_width", "PCIe width now", "warn"),
    ("gpu.devices.*.vbios", "VBIOS", "warn"),
    ("host.kernel", "kernel", "warn"),
    ("host.memory_nodes", "NUMA binding", "warn"),
    ("host.turbo", "turbo", "warn"),
    ("host.huge_pages", "transparent huge pages", "warn"),
    ("code.dirty", "uncommitted changes", "warn"),
)
# Facts for which "not set" is an answer, not a gap in knowledge.
_ABSENT_IS_A_VALUE = "variables.values."
# Facts that move by themselves; they would make every full fingerprint unique.
_VOLATILE = frozenset(
    {"taken_utc", "unknown", "load_1min", "cgroup_throttled_us", "swap_used_bytes", "processes"}
    | {"temperature_c", "pcie_gen", "pcie_width"}  # links idle down
)


@dataclass(frozen=True)
class Difference:
    """One field in which two environments differ, or of which nothing is known."""

    path: str
    label: str
    a: Any
    b: Any
    action: Literal["refuse", "warn"]
    why: str  # "differs", or "unknown in A", …

    def in_words(self, a: str = "in A", b: str = "in B") -> str:
        """One clause: ``driver: 580 in A, 590 in B``; of long lists only what differs."""
        left, right = self.a, self.b
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            names = sorted(n for n in set(left) | set(right) if left.get(n) != right.get(n))
            left = ", ".join(f"{n} {left.get(n) or 'missing'}" for n in names[:5])
            right = ", ".join(f"{n} {right.get(n) or 'missing'}" for n in names[:5])
        shown = [_shown(v) for v in (left, right)]
        return f"{self.label}: {shown[0]} {a}, {shown[1]} {b}"


def differences(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    *,
    stored: bool,
    knobs: Collection[str] = (),
) -> tuple[Difference, ...]:
    """What differs between two records, worst first.

    ``stored``: one of them is from another session (a baseline). ``knobs`` are the paths that
    were changed on purpose; they never refuse. Unknown on both sides for the same reason is the
    nature of the machine (no GPU), and is left out.
    """
    found = [
        difference
        for path, label, action in _FIELDS
        if (difference := _compare(a, b, path, label, _effective(action, path, stored, knobs)))
    ]
    return tuple(sorted(found, key=lambda d: d.action != "refuse"))


def refusals(found: Collection[Difference]) -> tuple[Difference, ...]:
    """Those that forbid a verdict."""
    return tuple(d for d in found if d.action == "refuse")


def fingerprint(env: Mapping[str, Any]) -> str:
    """SHA-256 over the fields that forbid a comparison with a stored result when they differ."""
    key = {p: _look_up(env, p) for p, _, action in _FIELDS if action != "warn"}
    return _digest(key)


def full_fingerprint(env: Mapping[str, Any]) -> str:
    """SHA-256 over the whole record, without what moves by itself (time, load, temperature)."""
    return _digest(_steady(env))


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    return ", ".join(map(_shown, value)) if isinstance(value, list) else str(value)


def _effective(
    action: Action, path: str, stored: bool, knobs: Collection[str]
) -> Literal["refuse", "warn"]:
    if path in knobs:
        return "warn"
    return "refuse" if action == "refuse" or (action == "refuse stored" and stored) else "warn"


def _compare(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    path: str,
    label: str,
    action: Literal["refuse", "warn"],
) -> Difference | None:
    left, right = _look_up(a, path), _look_up(b, path)
    if left == right and (not _has_gap(left) or _same_reason(a, b, path)):
        return None
    if path.startswith(_ABSENT_IS_A_VALUE) and (left is None or right is None):
        return Difference(path, label, left, right, action, "differs")
    if _has_gap(left) or _has_gap(right):
        both = _has_gap(left) and _has_gap(right)
        side = "both" if both else "A" if _has_gap(left) else "B"
        return Difference(path, label, left, right, "warn", f"unknown in {side}")
    return Difference(path, label, left, right, action, "differs")


def _has_gap(value: Any) -> bool:
    return value is None or (isinstance(value, list) and any(v is None for v in value))


def _same_reason(a: Mapping[str, Any], b: Mapping[str, Any], path: str) -> bool:
    return path.startswith(_ABSENT_IS_A_VALUE) or _reasons(a, path) == _reasons(b, path) != set()


def _reasons(env: Mapping[str, Any], path: str) -> set[str]:
    """Why a path is null: a reason recorded at it, above it, or for any device of a ``*``."""
    unknown: Mapping[str, str] = env.get("unknown", {})
    head = path.split(".*")[0]
    parents = {".".join(path.split(".")[: i + 1]) for i in range(path.count(".") + 1)}
    last = path.rsplit(".", 1)[-1]
    return {
        why
        for where, why in unknown.items()
        if where in parents
        or ("*" in path and where.startswith(head) and where.endswith(f".{last}"))
    }


def _look_up(env: Mapping[str, Any], path: str) -> Any:
    value: Any = env
    parts = path.split(".")
    for i, part in enumerate(parts):
        if part == "*":
            if not isinstance(value, list):
                return None
            return [_look_up(one, ".".join(parts[i + 1 :])) for one in value]
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _steady(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _steady(v) for k, v in value.items() if k not in _VOLATILE}
    return [_steady(v) for v in value] if isinstance(value, list) else value


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
