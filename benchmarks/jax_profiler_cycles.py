"""Whether a JAX program outlives its profiler, begun and ended four times while it works.

    python benchmarks/jax_profiler_cycles.py thread   from another thread, with work under way
    python benchmarks/jax_profiler_cycles.py idle     in the main thread, with all arrays waited for

The program is ``programs/live/r11.py``, which copies a buffer of 9.6 GB in each step. Needs a GPU.
"""

import sys
import tempfile
import threading
import time
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parent / "programs/live"))
CYCLES, RECORDED_S = 4, 0.3


def main() -> int:
    """Print each cycle; an error of the program ends this."""
    if sys.argv[1:] not in (["thread"], ["idle"]):
        print(__doc__)
        return 2
    import r11

    agent, number = r11.Agent("cuda", jax.jit), 0

    def steps(count: int) -> None:
        nonlocal number
        for _ in range(count):
            agent.step(number)
            number += 1

    steps(45)
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1] == "idle":
            for cycle in range(CYCLES):
                _wait()
                jax.profiler.start_trace(f"{folder}/{cycle}")
                steps(12)
                _wait()
                jax.profiler.stop_trace()
                steps(60)
                print("cycle", cycle, "loss", float(agent.loss), flush=True)
        else:
            done = threading.Event()
            threading.Thread(target=_from_outside, args=(folder, done), daemon=True).start()
            while not done.is_set():
                steps(1)
    print("the program goes on, loss", float(agent.loss))
    return 0


def _wait() -> None:
    for array in jax.live_arrays():
        if not array.is_deleted():
            array.block_until_ready()


def _from_outside(folder: str, done: threading.Event) -> None:
    for cycle in range(CYCLES):
        time.sleep(2 * RECORDED_S)
        jax.profiler.start_trace(f"{folder}/{cycle}")
        time.sleep(RECORDED_S)
        jax.profiler.stop_trace()
        print("cycle", cycle, flush=True)
    time.sleep(1)
    done.set()


if __name__ == "__main__":
    sys.exit(main())
