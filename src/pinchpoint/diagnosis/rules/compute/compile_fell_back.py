"""Some layers run compiled, and others of the same class run operator by operator.

## What it looks for
Modules of one class of which some launch fused Triton kernels and others launch none, but three
and more elementwise kernels in their place, beside as many matrix products. The compiled twins
prove that the class compiles, and show what it takes then. Modules that are all eager are another
matter (unfused-pointwise), and so is compiling that goes on (recompiles), or that breaks inside
every one of them (graph-breaks). Not checked without modules in the recording.

## Why it matters
The compiler keeps a limited number of versions of one function (eight by default). If each layer
needs its own, because its code reads a number or a flag of the layer, the first few get one and
the rest run eagerly for the whole job, with one warning at the start.

## How to fix it
Make one version serve all layers: turn the attribute into a buffer or an argument, mark it as
dynamic, or compile the block of layers as one. `TORCH_LOGS=recompiles` names the guard; a higher
`torch._dynamo.config.recompile_limit` helps where the versions are few.

## When to ignore it
Layers that are left out of compiling on purpose.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.replay.least_durations import products
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS_AND_MODULES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=STACKS_AND_MODULES,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python train.py" "python train_one_version.py"',
)

FEWEST_EAGER_KERNELS = (
    3  # elementwise ones a module; compiled code leaves one or two here and there
)

_MODULE = regex(r"nn\.Module: (\w+?)_\d+$")
_WRAPPER = "OptimizedModule"  # what torch.compile puts around a module of whatever class
_FUSED = ("triton_poi", "triton_red", "triton_per")


@dataclass(frozen=True, eq=False)
class _Twins:
    """Device work of one class of modules, but for its products, by how its modules run."""

    name: str
    eager: Rows  # of device_ops
    eager_modules: int  # calls in the judged steps
    eager_ns: float  # each call
    fused_modules: int
    fused_ns: float


def check(trace: Trace) -> Iterator[Found]:
    """Eager modules with compiled twins."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return
    fused = rows_named(trace, ops, lambda n: n.startswith(_FUSED)) & device_ops_in_steps(trace)
    if not fused.any():
        return
    if not rows_named(trace, host, lambda n: bool(_MODULE.match(n))).any():
        raise NotChecked("the recording has no modules")
    found = [t for name in _classes(trace, fused) if (t := _twins(trace, name, fused))]
    if not found:
        return
    most = max(found, key=lambda t: t.eager_modules * (t.eager_ns - t.fused_ns))
    mask = np.zeros(len(ops), np.bool_)
    mask[most.eager] = True
    work = device_work(trace, mask, "eager kernels of modules whose twins are compiled")
    if work is None or most.fused_ns >= most.eager_ns:
        return
    every = most.eager_modules + most.fused_modules
    ratio = most.fused_ns / most.eager_ns
    yield Found(
        summary=(
            f"{100 * most.eager_modules / every:.0f} % of the calls of {most.name} run operator by"
            f" operator although the others are compiled: {duration(most.eager_ns)} each against"
            f" {duration(most.fused_ns)}, products left out"
        ),
        evidence=(
            *work.evidence,
            Evidence("compiled calls of the class", most.fused_modules, "count"),
            Evidence("eager calls of the class", most.eager_modules, "count"),
            Evidence("a compiled call", round(most.fused_ns), "ns"),
            Evidence("an eager call", round(most.eager_ns), "ns"),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(ScaleDeviceOps(work.rows, ratio, bytes_left=ratio),),
        location=work.place,
        fix="Let one compiled version serve all layers: no Python numbers of a layer in its code",
        hint="self.register_buffer('scale', torch.tensor(scale))  # TORCH_LOGS=recompiles names it",
    )


def _classes(trace: Trace, fused: Mask) -> set[str]:
    """Classes of the modules around fused kernels."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    chain, names = parents(host), set()
    at = np.unique(ops.filled("host_op", len(host))[fused]).astype(np.intp)
    at = at[at < len(host)]
    while len(at):
        for position in np.unique(host["name"][at]).tolist():
            if match := _MODULE.match(trace.names[position]):
                names.add(match[1])
        at = np.unique(chain[at])
        at = at[at < len(host)]
    return names - {_WRAPPER}


def _twins(trace: Trace, name: str, fused: Mask) -> _Twins | None:
    """The modules of a class by how they run; None unless some are fused and some eager."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    none = len(host)
    modules = rows_named(
        trace, host, lambda n: (m := _MODULE.match(n)) is not None and m[1] == name
    )
    around = np.append(nearest(parents(host), modules), none)[ops.filled("host_op", none)]
    inside = (around < none) & device_ops_in_steps(trace)
    plain = inside & np.isin(category_of_device_ops(trace), (Category.ELEMENTWISE,)) & ~fused
    per_fused = np.bincount(around[inside & fused], minlength=none + 1)
    per_plain = np.bincount(around[plain], minlength=none + 1)
    compiled, eager = per_fused > 0, (per_fused == 0) & (per_plain >= FEWEST_EAGER_KERNELS)
    multiplies = np.bincount(around[inside & products(trace)], minlength=none + 1)
    eager &= np.isin(multiplies, multiplies[compiled])
    if not compiled[:none].any() or not eager[:none].any():
        return None
    other = inside & ~products(trace)
    took = np.bincount(around[other], ops["duration_ns"][other], none + 1)
    return _Twins(
        name,
        np.flatnonzero(other & eager[around]),
        int(eager[:none].sum()),
        float(took[eager].mean()),
        int(compiled[:none].sum()),
        float(took[compiled].mean()),
    )
