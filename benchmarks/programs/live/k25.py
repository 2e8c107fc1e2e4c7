"""Following the full propagator of a driven lattice, with a written record of its drift."""

import argparse
import copy
import json
import os
import tempfile
import threading
import time

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

SITES, PULSES, COUNT, WARM = 1400, 3, 4, 2


class Lattice:
    """A few dense random pulses act on the lattice in changing order."""

    def __init__(self):
        rng = np.random.default_rng(0)
        raw = [rng.standard_normal((SITES, SITES), dtype=np.float32) for _ in range(PULSES)]
        self.pulses = [matrix / np.float32(SITES**0.5) for matrix in raw]
        self.whole = np.eye(SITES, dtype=np.float32)
        self.spare = np.empty_like(self.whole)
        self.order = np.random.default_rng(1)

    def advance(self, count):
        """One tick: `count` pulses, drawn at random, move the propagator."""
        for number in self.order.integers(0, PULSES, count):
            np.matmul(self.pulses[number], self.whole, out=self.spare)
            self.whole, self.spare = self.spare, self.whole

    def drift(self, count=24):
        lengths = []
        for row in range(count):
            lengths.append(float(np.sqrt(sum(value * value for value in self.whole[row, ::16].tolist()))))
        return lengths


class Record:
    def __init__(self, folder):
        self.path = os.path.join(folder, "drift.json")
        self.guard, self.rows = threading.Lock(), []

    def add(self, step, strength, lengths):
        with self.guard:
            self.rows = self.rows + [{"step": step, "strength": strength, "lengths": lengths[:4]}]
            shown = copy.deepcopy(self.rows[-10:])
        with open(self.path, "w") as out:
            json.dump(shown, out, indent=2)
            out.flush()
        return shown[-1]


class Drive:
    def __init__(self):
        self.history = np.zeros(0, dtype=np.float64)

    def strength(self, step):
        value = 1 + 0.5 * np.sin(0.3 * step)
        self.history = np.append(self.history, value)
        return float(value), float(self.history.mean())


def main():
    with tempfile.TemporaryDirectory() as folder:
        lattice, record, drive = Lattice(), Record(folder), Drive()
        start = begin = time.perf_counter()
        for step in range(1, args.steps + 1):
            strength, usual = drive.strength(step)
            lattice.advance(COUNT)
            row = record.add(step, strength, lattice.drift())
            if step % 5 == 0:
                print(f"tick {step} length {row['lengths'][0]:.4f} usual drive {usual:.3f}", flush=True)
            if step == WARM:
                start = time.perf_counter()
            if time.perf_counter() - begin > args.max_seconds:
                break
        took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
