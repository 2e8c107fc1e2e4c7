"""Soft clustering of sensor readings by a mixture of Gaussians, in NumPy."""

import argparse
import time

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()

READINGS, SENSORS, STATES = 6000, 20, 12


def readings():
    pick = np.random.default_rng(9)
    centre = pick.standard_normal((STATES, SENSORS)) * 2
    mix = pick.standard_normal((STATES, SENSORS, SENSORS)) * 0.3
    state = pick.integers(0, STATES, READINGS)
    noise = pick.standard_normal((READINGS, SENSORS))
    return centre[state] + np.matmul(mix[state], noise[:, :, None])[:, :, 0]


class Mixture:
    def __init__(self, x):
        pick = np.random.default_rng(1)
        self.x = x
        self.weight = np.full(STATES, 1 / STATES)
        self.mean = x[pick.choice(len(x), STATES, replace=False)]
        self.cov = np.stack([np.cov(x.T)] * STATES)

    def distances(self):
        precision = np.linalg.inv(self.cov)
        gap = self.x[:, None, :] - self.mean[None]
        return np.einsum("nki,kij,nkj->nk", gap, precision, gap)

    def distances_whitened(self):
        root = np.linalg.cholesky(np.linalg.inv(self.cov))
        result = np.empty((len(self.x), STATES))
        for state in range(STATES):
            white = (self.x - self.mean[state]) @ root[state]
            result[:, state] = (white * white).sum(1)
        return result

    def expect(self):
        away = self.distances() if args.variant == "slow" else self.distances_whitened()
        volume = np.linalg.slogdet(self.cov)[1]
        log = np.log(self.weight) - 0.5 * (away + volume + SENSORS * np.log(2 * np.pi))
        top = log.max(1, keepdims=True)
        share = np.exp(log - top)
        total = share.sum(1, keepdims=True)
        return share / total, (top + np.log(total)).mean()

    def maximise(self, share):
        count = share.sum(0) + 1e-9
        self.weight = count / len(self.x)
        self.mean = share.T @ self.x / count[:, None]
        for state in range(STATES):
            gap = self.x - self.mean[state]
            spread = (gap * share[:, state : state + 1]).T @ gap / count[state]
            self.cov[state] = spread + 1e-3 * np.eye(SENSORS)


class Watch:
    """Keeps the last likelihoods to see whether fitting has settled."""

    def __init__(self):
        self.likelihoods = []

    def add(self, value):
        self.likelihoods.append(float(value))

    def change(self):
        return self.likelihoods[-1] - self.likelihoods[-2] if len(self.likelihoods) > 1 else float("inf")


def main():
    mixture, watch, ends = Mixture(readings()), Watch(), []
    for step in range(args.steps):
        share, likelihood = mixture.expect()
        mixture.maximise(share)
        watch.add(likelihood)
        ends.append(time.perf_counter())
        if step % 50 == 0:
            print(f"step {step} likelihood {likelihood:.4f} change {watch.change():.2e}", flush=True)
    half = ends[len(ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
