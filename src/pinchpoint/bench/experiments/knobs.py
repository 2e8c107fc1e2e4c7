"""The built-in knobs: what each does, what it risks, and how to keep it."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pinchpoint.bench.run import Arm
from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.inside import KNOBS_VARIABLE
from pinchpoint.monitor.environment.host import cgroup_cpus

_MOST_WORKERS = 8  # a start; the user can give another number


@dataclass(frozen=True)
class Knob:
    """A change that can be made without editing the program.

    ``values`` are what is tried if none is given. ``fix`` is how to keep it in the code.
    """

    name: str
    what: str
    values: tuple[str, ...]
    fix: str
    variable: tuple[str, str] | None = None  # set by an environment variable: name and value
    inside: bool = False  # a program may undo the variable: held from inside, too
    changes_numbers: bool = False


def _worker_count() -> str:
    return str(min(_MOST_WORKERS, cores_allowed()))


def cores_allowed() -> int:
    """CPUs that programs started here may use: of the machine, by affinity and control group."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = cgroup_cpus()
    return max(1, min(allowed or 1, allowed or 1 if quota is None else int(quota)))


_KEEP = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184"
KNOBS: tuple[Knob, ...] = (
    Knob(
        "num_workers",
        "worker processes of the DataLoader",
        (_worker_count(),),
        "DataLoader(num_workers=N)",
    ),
    Knob(
        "pin_memory",
        "page-locked batches",
        ("true",),
        "DataLoader(pin_memory=True), and .to(device, non_blocking=True)",
    ),
    Knob(
        "prefetch_factor",
        "batches that each worker keeps ready",
        ("4",),
        "DataLoader(prefetch_factor=4)",
    ),
    Knob(
        "persistent_workers",
        "workers live from epoch to epoch",
        ("true",),
        "DataLoader(persistent_workers=True)",
    ),
    Knob(
        "tf32",
        "float32 products on the matrix units",
        ("true",),
        'torch.set_float32_matmul_precision("high")',
        changes_numbers=True,
    ),
    Knob(
        "autocast",
        "the model's forward pass in 16 bits",
        ("bfloat16",),
        'with torch.autocast("cuda", torch.bfloat16): around the forward pass',
        changes_numbers=True,
    ),
    Knob(
        "float32",
        "float64 models, and tensors given to them, in 32 bits",
        ("true",),
        "model.float(), and dtype=float32 where the data is made",
        changes_numbers=True,
    ),
    Knob(
        "compile",
        "torch.compile of the model",
        ("default", "reduce-overhead"),
        "model.compile(mode=...)",
    ),
    Knob(
        "channels_last",
        "images with channels last",
        ("true",),
        "model.to(memory_format=torch.channels_last), and the inputs too",
    ),
    Knob(
        "fused_optimizer",
        "one kernel for the optimizer step",
        ("true",),
        "AdamW(..., fused=True)",
    ),
    Knob(
        "cudnn_benchmark",
        "let cuDNN choose convolution algorithms by measuring",
        ("true",),
        "torch.backends.cudnn.benchmark = True (fixed shapes only)",
    ),
    Knob(
        "expandable_segments",
        "allocator segments that grow",
        ("true",),
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        variable=("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
    ),
    Knob(
        "keep_memory",
        "freed memory stays with the C library's allocator",
        ("true",),
        f"GLIBC_TUNABLES={_KEEP} before the command, or jemalloc in LD_PRELOAD",
        variable=("GLIBC_TUNABLES", _KEEP),
    ),
    Knob(
        "batch_size",
        "a larger batch (compared by samples a second)",
        ("x2",),
        "DataLoader(batch_size=...); the learning rate may have to change",
        changes_numbers=True,
    ),
    Knob(
        "gc",
        "no garbage collection by Python",
        ("off",),
        "gc.freeze() after set-up, gc.disable() and gc.collect() at a time of your choice",
    ),
    Knob(
        "omp_threads",
        "threads of CPU operators",
        tuple(dict.fromkeys((str(cores_allowed()), "1"))),
        "OMP_NUM_THREADS=1 (or torch.set_num_threads)",
        variable=("OMP_NUM_THREADS", "{value}"),
        inside=True,
    ),
)
_BY_NAME = {knob.name: knob for knob in KNOBS}


@dataclass(frozen=True)
class Setting:
    """A knob at a value."""

    knob: Knob
    value: str

    @property
    def text(self) -> str:
        """``name=value``."""
        return f"{self.knob.name}={self.value}"


def knob_named(name: str) -> Knob:
    """UsageError for a knob that is not built in."""
    if name not in _BY_NAME:
        raise UsageError(f"no knob {name!r}", hint=f"one of: {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def settings_of(text: str) -> list[Setting]:
    """``name`` (its usual values), ``name=value`` or ``name=value,value``."""
    name, equals, values = text.partition("=")
    knob = knob_named(name)
    chosen = tuple(v for v in values.split(",") if v) if equals else knob.values
    if not chosen:
        raise UsageError(f"--knob {text}: no value", hint=f"{name}={knob.values[0]}")
    return [Setting(knob, value) for value in chosen]


def proposed(names: Iterable[str]) -> list[Setting]:
    """The usual settings of these knobs, in their order, each knob once."""
    knobs = (_BY_NAME[name] for name in dict.fromkeys(names))
    return [Setting(knob, value) for knob in knobs for value in knob.values]


def with_settings(base: Arm, settings: tuple[Setting, ...], name: str) -> Arm:
    """The program with these knobs turned."""
    env = dict(base.env)
    inside = {}
    for setting in settings:
        if setting.knob.variable:
            variable, template = setting.knob.variable
            env[variable] = template.format(value=setting.value)
        if setting.knob.inside or not setting.knob.variable:
            inside[setting.knob.name] = _typed(setting)
    if inside:
        env[KNOBS_VARIABLE] = json.dumps(inside)
    params = dict(base.params) | {s.knob.name: s.value for s in settings}
    return replace(base, name=name, env=env, params=params)


def _typed(setting: Setting) -> Any:
    """The value as the program needs it."""
    value = setting.value
    if value in ("true", "false"):
        return value == "true"
    name = setting.knob.name
    if name in ("num_workers", "prefetch_factor", "omp_threads"):
        return _whole(setting)
    if name == "batch_size" and not value.startswith("x"):
        return _whole(setting)
    return value


def _whole(setting: Setting) -> int:
    if not setting.value.isdigit():
        raise UsageError(f"{setting.text}: not a whole number", hint=f"{setting.knob.name}=4")
    return int(setting.value)
