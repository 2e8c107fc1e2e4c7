"""Particle filter over a random map, with debug tracing of the filter state."""

import argparse
import logging
import time

import numpy as np

log = logging.getLogger("filter")


class ParticleFilter:
    def __init__(self, n, landmarks, rng, variant):
        self.rng, self.landmarks, self.variant = rng, landmarks, variant
        self.pos = rng.random((n, 2)) * 10
        self.weight = np.full(n, 1 / n)

    def move(self, delta):
        self.pos = self.pos + delta + self.rng.normal(scale=0.05, size=self.pos.shape)

    def weigh(self, ranges):
        d = np.linalg.norm(self.pos[:, None] - self.landmarks[None], axis=2)
        loglik = -0.5 * (((d - ranges) / 0.2) ** 2).sum(1)
        w = np.exp(loglik - loglik.max()) + 1e-12
        self.weight = w / w.sum()
        if self.variant == "slow":
            log.debug(
                f"weights {self.weight} positions {self.pos} ranges {ranges} best {self.pos[w.argmax()]}"
            )
        else:
            log.debug("weights %s positions %s ranges %s", self.weight, self.pos, ranges)

    def resample(self):
        n = len(self.weight)
        steps = (np.arange(n) + self.rng.random()) / n
        idx = np.minimum(np.searchsorted(np.cumsum(self.weight), steps), n - 1)
        self.pos = self.pos[idx]

    def estimate(self):
        return self.weight @ self.pos


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()

    logging.basicConfig(level=logging.INFO)
    rng = np.random.default_rng(4)
    landmarks = rng.random((6, 2)) * 10
    truth = np.array([5.0, 5.0])
    pf = ParticleFilter(1200, landmarks, rng, args.variant)
    cpu, wall, result, begin = [], [], 0.0, time.perf_counter()
    for step in range(args.steps):
        c, w = time.process_time(), time.perf_counter()
        for _ in range(60):
            delta = rng.normal(scale=0.02, size=2)
            truth = truth + delta
            ranges = np.linalg.norm(landmarks - truth, axis=1) + rng.normal(scale=0.1, size=6)
            pf.move(delta)
            pf.weigh(ranges)
            error = np.linalg.norm(pf.estimate() - truth)
            pf.resample()
        result = float(error)
        cpu.append(time.process_time() - c)
        wall.append(time.perf_counter() - w)
        if len(cpu) % 20 == 0:
            print(len(cpu), f"{result:.6g}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    med = sorted(cpu)[len(cpu) // 2] * 1e3
    print(
        f"done steps={len(cpu)} median_cpu_ms={med:.2f} median_wall_ms={sorted(wall)[len(wall) // 2] * 1e3:.2f} result={result:.6g}"
    )


if __name__ == "__main__":
    main()
