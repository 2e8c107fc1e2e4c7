"""Calibrating weather stations: one text log a step, a ridge fit of its sensors."""

import argparse
import os
import tempfile
import time

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

STATIONS, ROWS, SENSORS, WARM = 24, 2500, 6, 3


class Logs:
    """Comma-separated station logs in a folder."""

    def __init__(self, folder):
        rng = np.random.default_rng(0)
        self.paths = []
        for number in range(STATIONS):
            values = rng.normal(size=(ROWS, SENSORS))
            level = values @ rng.normal(size=SENSORS) + 0.3 * values[:, 0] * values[:, 1]
            table = np.column_stack([values, level + rng.normal(0, 0.1, ROWS)])
            path = os.path.join(folder, f"station_{number:02d}.csv")
            np.savetxt(path, table, delimiter=",", fmt="%.6f", header="a,b,c,d,e,f,level", comments="")
            self.paths.append(path)

    def read(self, number):
        return np.genfromtxt(self.paths[number], delimiter=",", skip_header=1)


class PlainLogs(Logs):
    def read(self, number):
        return np.loadtxt(self.paths[number], delimiter=",", skiprows=1)


def expand(values):
    """All products of two sensors beside the sensors themselves."""
    left, right = np.triu_indices(values.shape[1])
    return np.column_stack([np.ones(len(values)), values, values[:, left] * values[:, right]])


class Calibration:
    def __init__(self, strength=1e-3):
        self.strength, self.errors, self.weights = strength, [], {}

    def fit(self, station, table):
        features, level = expand(table[:, :-1]), table[:, -1]
        gram = features.T @ features + self.strength * np.eye(features.shape[1])
        weights = np.linalg.solve(gram, features.T @ level)
        self.weights[station] = weights
        rest = level - features @ weights
        self.errors.append(float(np.sqrt(np.mean(rest**2))))
        return self.outliers(rest)

    @staticmethod
    def outliers(rest, bootstraps=40):
        rng = np.random.default_rng(len(rest))
        picks = rng.integers(0, len(rest), (bootstraps, len(rest)))
        limit = 4 * np.std(rest[picks], axis=1).mean()
        return int((np.abs(rest) > limit).sum())


def main():
    with tempfile.TemporaryDirectory() as folder:
        logs = (Logs if args.variant == "slow" else PlainLogs)(folder)
        calibration, flagged = Calibration(), 0
        start = begin = time.perf_counter()
        for step in range(1, args.steps + 1):
            station = step % STATIONS
            flagged += calibration.fit(station, logs.read(station))
            if step % 25 == 0:
                print(f"log {step} error {np.mean(calibration.errors[-25:]):.4f} flagged {flagged}", flush=True)
            if step == WARM:
                start = time.perf_counter()
            if time.perf_counter() - begin > args.max_seconds:
                break
        took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
