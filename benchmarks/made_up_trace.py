"""A made-up training trace in memory: the shape of a real one, of any number of events.

Faster than writing and reading a file, for benchmarks of what comes after reading. The same count
gives the same trace.
"""

from typing import Any

import numpy as np

from pinchpoint.trace import (
    TABLES,
    ApiKind,
    Device,
    DeviceKind,
    HostKind,
    Names,
    Source,
    Table,
    Thread,
    Trace,
    table,
)

EVENTS_OF_OPERATOR = 5  # a Python function, two operators, a launch and a kernel
OPERATORS_OF_STEP = 288
OPERATOR_NS = 40_000
KERNEL = "void at::native::kernel_{0}<4, at::native::Functor_{0}<float> >(int, float*)"


def made_up(events: int) -> Trace:
    """About so many events, in whole steps."""
    steps = max(round(events / EVENTS_OF_OPERATOR / OPERATORS_OF_STEP), 1)
    count = steps * OPERATORS_OF_STEP
    rng, names = np.random.default_rng(1), Names()
    at = np.arange(count, dtype=np.int64) * OPERATOR_NS + rng.integers(0, 1500, count)
    return Trace(
        source=Source("made-up", "made up", recorder="torch.profiler"),
        threads=(Thread("1", "1", "main"),),
        devices=(Device(0, "NVIDIA H100 80GB HBM3", 85_017_493_504, 132, (9, 0), "nvidia"),),
        host_ops=_host(at, rng, names),
        api_calls=_calls(at, rng, names),
        device_ops=_kernels(at, rng, names),
        steps=_steps(steps, names),
        names=names.freeze(),
    )


def _host(at: np.ndarray, rng: np.random.Generator, names: Names) -> Table:
    count, operator = len(at), np.arange(len(at))
    takes = rng.integers(20_000, 36_000, count)
    functions = _ids(names, "model.py({0}): forward_{0}", 24)[operator // 12 % 24]
    operators = _ids(names, "aten::op_{0}", 40)[rng.integers(0, 40, count)]
    inner = np.full(count, names.id_of("aten::as_strided"))
    kinds = (HostKind.PYTHON, HostKind.OPERATOR, HostKind.OPERATOR)
    return _table(
        "host_ops",
        missing={"parent": np.tile([True, False, False], count)},
        start_ns=_woven(at, at + 100, at + 1000),
        duration_ns=_woven(takes + 2000, takes, rng.integers(1500, 2500, count)),
        name=_woven(functions, operators, inner),
        kind=np.tile(kinds, count),
        thread=np.zeros(3 * count),
        parent=_woven(np.zeros(count), 3 * operator, 3 * operator + 1),
    )


def _calls(at: np.ndarray, rng: np.random.Generator, names: Names) -> Table:
    count, operator = len(at), np.arange(len(at))
    return _table(
        "api_calls",
        start_ns=at + 4000 + rng.integers(0, 999, count),
        duration_ns=3000 + rng.integers(0, 999, count),
        name=np.full(count, names.id_of("cudaLaunchKernel")),
        kind=np.full(count, ApiKind.LAUNCH),
        thread=np.zeros(count),
        correlation=operator + 1,
        host_op=3 * operator + 1,
    )


def _kernels(at: np.ndarray, rng: np.random.Generator, names: Names) -> Table:
    count, operator = len(at), np.arange(len(at))
    return _table(
        "device_ops",
        start_ns=at + 9000 + rng.integers(0, 400, count),
        duration_ns=rng.integers(900, 36_000, count),
        name=_ids(names, KERNEL, 60)[rng.integers(0, 60, count)],
        kind=np.full(count, DeviceKind.KERNEL),
        device=np.zeros(count),
        stream=np.full(count, 7),
        correlation=operator + 1,
        api_call=operator,
        host_op=3 * operator + 1,
    )


def _steps(count: int, names: Names) -> Table:
    length = OPERATORS_OF_STEP * OPERATOR_NS
    return _table(
        "steps",
        start_ns=np.arange(count) * length,
        duration_ns=np.full(count, length - 500),
        name=_ids(names, "ProfilerStep#{0}", count),
        number=np.arange(count),
        thread=np.zeros(count),
    )


def _ids(names: Names, pattern: str, count: int) -> np.ndarray:
    return np.array([names.id_of(pattern.format(i)) for i in range(count)])


def _woven(*columns: np.ndarray) -> np.ndarray:
    return np.stack(columns, 1).reshape(-1)


def _table(of: str, /, missing: dict[str, np.ndarray] | None = None, **columns: Any) -> Table:
    typed = {k: np.asarray(v).astype(TABLES[of][k].dtype) for k, v in columns.items()}
    return table(of, typed, missing)
