"""Density-matrix purification for a tight-binding chain in double precision, repeated over perturbed Hamiltonians."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass, field

import torch

PROGRAM = "gb12"
CHOICES = ["healthy"]
DEFAULT_STEPS = 220
WARMUP = 3


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


@dataclass
class PurificationLog:
    iterations: list = field(default_factory=list)
    energies: list = field(default_factory=list)
    defects: list = field(default_factory=list)


class TightBinding:
    """Two bands of site energies with weak symmetric long-range disorder."""

    def __init__(self, sites, device, variants=3, seed=0):
        self.sites, self.device = sites, device
        self.occupied = sites // 2
        self.gen = torch.Generator(device=device).manual_seed(seed)
        spread = torch.rand(sites, device=device, generator=self.gen, dtype=torch.float64) * 0.6 - 0.3
        band = torch.where(torch.arange(sites, device=device) % 2 == 0, -1.0, 1.0).to(torch.float64)
        self.levels = torch.diag(spread + band)
        self.disorder = [self.symmetric_noise() for _ in range(variants)]

    def symmetric_noise(self):
        raw = torch.randn(self.sites, self.sites, device=self.device, generator=self.gen, dtype=torch.float64)
        return (raw + raw.mT).mul_(0.04 / self.sites ** 0.5)

    def hamiltonian(self, index, strength):
        return torch.add(self.levels, self.disorder[index % len(self.disorder)], alpha=strength)


def spectral_bounds(matrix):
    diagonal = matrix.diagonal()
    radius = torch.linalg.vector_norm(matrix, ord=2, dim=1)
    slack = 0.25
    return (diagonal.min() - slack * radius.max()).item(), (diagonal.max() + slack * radius.max()).item()


class Purifier:
    """Second-order spectral projection: squares or reflects until the trace equals the electron count."""

    def __init__(self, occupied, tolerance, limit):
        self.occupied, self.tolerance, self.limit = occupied, tolerance, limit

    def initial(self, matrix):
        low, high = spectral_bounds(matrix)
        guess = matrix.mul(-1.0 / (high - low))
        guess.diagonal().add_(high / (high - low))
        return guess

    def project(self, matrix):
        x = self.initial(matrix)
        trace = x.diagonal().sum().item()
        for iteration in range(1, self.limit + 1):
            square = x @ x
            squared_trace = square.diagonal().sum().item()
            defect = abs(trace - squared_trace)
            if abs(squared_trace - self.occupied) < abs(2 * trace - squared_trace - self.occupied):
                x, trace = square, squared_trace
            else:
                x, trace = torch.lerp(square, x, 2.0), 2 * trace - squared_trace
            if defect < self.tolerance * self.occupied:
                break
        return x, iteration, defect


def band_energy(density, matrix):
    return torch.dot(density.flatten(), matrix.flatten()).item()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    sites = 6144 if device.type == "cuda" else 192
    system = TightBinding(sites, device)
    purifier = Purifier(system.occupied, 1e-7, 16)
    log = PurificationLog()

    def step():
        number = len(log.energies)
        matrix = system.hamiltonian(number, 1.0 + 0.1 * (number % 5))
        density, iterations, defect = purifier.project(matrix)
        log.iterations.append(iterations)
        log.energies.append(band_energy(density, matrix))
        log.defects.append(defect)

    run_loop(args, device, step)
    print(json.dumps({"energy": round(log.energies[-1], 6), "iterations": log.iterations[-1],
                      "defect": log.defects[-1]}))


if __name__ == "__main__":
    main()
