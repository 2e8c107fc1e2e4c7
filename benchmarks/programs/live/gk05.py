"""Sparse-spike deconvolution of a seismic gather in JAX (iterative shrinkage with trace mixing)."""
import argparse
import json
import os
import statistics
import time

PROGRAM = "gk05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1300
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


ARGS = parse_args()
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
if ARGS.device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from scipy import fft as sfft  # noqa: E402

TRACES, SAMPLES, WAVELET, INNER = (2048, 15000, 1002, 4) if ARGS.device == "cuda" else (8, 300, 60, 2)


def ricker(n, peak, dt=0.001):
    t = (np.arange(n) - n // 2) * dt
    a = (np.pi * peak * t) ** 2
    return ((1 - 2 * a) * np.exp(-a)).astype(np.float32)


class Deconvolver:
    def __init__(self, variant):
        rng = np.random.default_rng(0)
        full = SAMPLES + WAVELET - 1
        self.n = sfft.next_fast_len(full, real=True) if variant == "fixed" else full
        wavelet = ricker(WAVELET, 25.0)
        self.spectrum = jnp.fft.rfft(jnp.asarray(wavelet), n=self.n)
        self.gain = 0.9 / float(jnp.max(jnp.abs(self.spectrum)) ** 2)
        mixing = np.exp(-0.5 * (np.arange(-2, 3) / 1.5) ** 2)
        self.mixing = (mixing / mixing.sum()).tolist()
        spikes = rng.standard_normal((TRACES, SAMPLES), dtype=np.float32)
        spikes *= np.abs(spikes) > 2.5
        self.full = full
        self.gather = self.convolve(jnp.asarray(spikes))
        self.update = jax.jit(self._update)

    def convolve(self, r):
        return jnp.fft.irfft(jnp.fft.rfft(r, n=self.n) * self.spectrum, n=self.n)[:, :self.full]

    def correlate(self, d):
        return jnp.fft.irfft(jnp.fft.rfft(d, n=self.n) * jnp.conj(self.spectrum), n=self.n)[:, :SAMPLES]

    def _update(self, r, gather, key):
        noisy = gather + 0.01 * jax.random.normal(key, (1, gather.shape[1]))

        def body(_, r):
            residual = noisy - self.convolve(r)
            r = r + self.gain * self.correlate(residual)
            near = jnp.pad(r, ((2, 2), (0, 0)), mode="edge")
            r = 0.95 * r + 0.05 * sum(w * near[k:k + TRACES] for k, w in enumerate(self.mixing))
            return jnp.sign(r) * jnp.maximum(jnp.abs(r) - 1e-3, 0)

        r = jax.lax.fori_loop(0, INNER, body, r)
        return r, jnp.sum(jnp.abs(r))


def main():
    args = ARGS
    solver = Deconvolver(args.variant)
    state = {"r": jnp.zeros((TRACES, SAMPLES), jnp.float32), "key": jax.random.key(0)}

    def step():
        state["key"], sub = jax.random.split(state["key"])
        state["r"], norm = solver.update(state["r"], solver.gather, sub)
        norm.block_until_ready()

    for _ in range(WARMUP):
        step()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                step()


if __name__ == "__main__":
    main()
