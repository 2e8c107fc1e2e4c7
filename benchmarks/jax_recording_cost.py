"""What JAX's profiler adds to a step, and to each event that it records.

    python benchmarks/jax_recording_cost.py [--rounds 3]

Programs of different grain (many small dispatches; one compiled program of many kernels; one of a
few long ones) run with and without ``jax.profiler`` in turn. The difference of their steps, and its
share of each event of the host that the recording has, say whether one cost an event would do to
take the recording's cost out. Run it alone: the device's counters have one user.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

import pinchpoint as pp

STEPS, RECORDED_STEPS = 50, 20

Program = Callable[[Any], Any]


def dispatches(x: Any) -> Any:
    """A hundred operations, each dispatched by itself."""
    for _ in range(100):
        x = x + 1.0
    return x


@jax.jit
def kernels(x: Any) -> Any:
    """One program of about a hundred kernels."""
    for _ in range(50):
        x = jnp.tanh(x @ x) * 0.5
    return x


@jax.jit
def products(x: Any) -> Any:
    """One program of a few long kernels."""
    big = jnp.tile(x, (16, 16))
    for _ in range(4):
        big = big @ big
    return big


def steps_us(program: Program, x: Any, count: int) -> float:
    """Median time of a step, waited for."""
    taken = []
    for number in range(count):
        begin = time.perf_counter()
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            jax.block_until_ready(program(x))
        taken.append(time.perf_counter() - begin)
    return 1e6 * median(taken)


def recorded(program: Program, x: Any) -> tuple[float, float, float]:
    """Median step under the profiler, and rows of the host and calls a step in the recording."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            step_us = steps_us(program, x, RECORDED_STEPS)
        (file,) = Path(folder).rglob("*.xplane.pb")
        trace = pp.load(file)
    host, calls = (len(t) if t is not None else 0 for t in (trace.host_ops, trace.api_calls))
    return step_us, host / RECORDED_STEPS, calls / RECORDED_STEPS


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    x = jnp.full((256, 256), 1e-3, jnp.float32)
    print(f"jax {jax.__version__} on {jax.devices()[0]}; medians of {options.rounds} rounds")
    for program in (dispatches, kernels, products):
        steps_us(program, x, 10)
        without, within = [], []
        for _ in range(options.rounds):
            without.append(steps_us(program, x, STEPS))
            within.append(recorded(program, x))
        plain, (step, host, calls) = (
            median(without),
            (median(w[i] for w in within) for i in range(3)),
        )
        added = step - plain
        print(
            f"{getattr(program, '__name__', '?'):10}  {plain:9.1f} us  recorded {step:9.1f} us "
            f"({step / plain - 1:+7.1%})  {host:6.0f} host rows, {calls:5.0f} calls a step: "
            f"{1e3 * added / max(host + calls, 1.0):6.0f} ns a row"
        )


if __name__ == "__main__":
    main()
