"""Offline reverb: a bank of damped resonators fed with clips of sparse percussive sound."""

import argparse
import time

import numpy as np
import torch


class ResonatorBank:
    def __init__(self, voices, rng):
        radius = 0.84 + 0.15 * rng.random(voices)
        angle = rng.random(voices) * np.pi
        self.a1 = torch.tensor(2 * radius * np.cos(angle), dtype=torch.float32)
        self.a2 = torch.tensor(-(radius**2), dtype=torch.float32)
        self.gain = torch.tensor(rng.normal(size=voices), dtype=torch.float32)
        self.y1 = torch.zeros(voices)
        self.y2 = torch.zeros(voices)

    def process(self, block):
        """block: excitation per sample; returns the mixed output energy."""
        energy = 0.0
        for sample in block:
            y = self.a1 * self.y1 + self.a2 * self.y2
            if sample != 0.0:
                y += self.gain * float(sample)
            self.y2, self.y1 = self.y1, y
            energy += float(y.abs().mean())
        return energy


def clips(rng, length):
    while True:
        clip = np.zeros(length, dtype=np.float32)
        hits = rng.integers(0, max(1, length // 20), 3)
        clip[hits] = rng.random(3)
        yield clip


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()

    torch.set_num_threads(1)
    if args.variant == "fixed":
        torch.set_flush_denormal(True)
    rng = np.random.default_rng(0)
    bank = ResonatorBank(20_000, rng)
    source = clips(rng, 600)
    cpu, wall, result, begin = [], [], 0.0, time.perf_counter()
    for step in range(args.steps):
        c, w = time.process_time(), time.perf_counter()
        result = bank.process(next(source))
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
