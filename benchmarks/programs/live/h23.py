"""Matching drifting series against a library of wavelet templates, epoch after epoch."""

import argparse
import functools
import time

import numpy as np

LENGTH = 2048


def build_template(code):
    """Chirped wavelet whose shape is set by an integer code."""
    width = 20 + code % 17 * 9
    rate = 0.02 + (code // 17) * 0.004
    t = np.linspace(-1, 1, LENGTH)
    out = np.zeros(LENGTH)
    for harmonic in range(1, 5):
        out += np.cos(2 * np.pi * rate * LENGTH * harmonic * t + 3 * t * t) / harmonic
    out *= np.exp(-((t * LENGTH / width) ** 2) / 50)
    spec = np.fft.rfft(out)
    return np.conj(spec) / (np.linalg.norm(out) + 1e-9)


def template_source(variant):
    if variant == "slow":
        return functools.lru_cache()(build_template)
    return functools.lru_cache(maxsize=512)(build_template)


class Matcher:
    def __init__(self, codes, template):
        self.codes = codes
        self.template = template

    def best(self, series):
        spec = np.fft.rfft(series)
        peak, which = -np.inf, -1
        for code in self.codes:
            score = np.abs(np.fft.irfft(spec * self.template(code))).max()
            if score > peak:
                peak, which = score, code
        return peak, which


def series(rng):
    walk = np.cumsum(rng.normal(size=LENGTH))
    return walk - np.linspace(walk[0], walk[-1], LENGTH)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()

    rng = np.random.default_rng(2)
    matcher = Matcher(range(180), template_source(args.variant))
    cpu, wall, result, begin = [], [], 0.0, time.perf_counter()
    for step in range(args.steps):
        c, w = time.process_time(), time.perf_counter()
        peak, which = matcher.best(series(rng))
        result = float(peak)
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
