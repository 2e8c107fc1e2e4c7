"""Self-consistent field of a closed-shell molecule with density fitting, in double precision (energies to 1e-9 hartree)."""
import argparse
import json
import statistics
import time

import torch

NAME = "t05"
STEPS = 80
WARMUP = 3


def symmetric(n, scale, device, seed):
    g = torch.Generator(device=device).manual_seed(seed)
    a = torch.randn(n, n, device=device, dtype=torch.float64, generator=g) * scale
    return (a + a.T) / 2


class Molecule:
    """Core Hamiltonian, overlap and the fitted three-index integrals [n, aux, n], symmetric in the outer indices."""

    def __init__(self, n, aux, occupied, device):
        self.n, self.aux, self.occupied, self.device = n, aux, occupied, device
        self.fitted = torch.empty(n, aux, n, device=device, dtype=torch.float64)
        for at in range(0, aux, 64):
            r = torch.randn(n, min(64, aux - at), n, device=device, dtype=torch.float64)
            self.fitted[:, at:at + 64] = (r + r.permute(2, 1, 0)) * (0.7 / (n * aux) ** 0.5)
        self.level = torch.diag(torch.linspace(-8, 4, n, device=device, dtype=torch.float64))
        overlap = torch.eye(n, device=device, dtype=torch.float64) + symmetric(n, 0.1 / n ** 0.5, device, 1)
        w, u = torch.linalg.eigh(overlap)
        self.overlap, self.ortho = overlap, u * w.rsqrt() @ u.T

    def core(self, geometry):
        return self.level + symmetric(self.n, 0.2 / self.n ** 0.5, self.device, 100 + geometry)


class Extrapolation:
    """Pulay's mixing over the last Fock matrices."""

    def __init__(self, depth=6):
        self.depth, self.focks, self.errors = depth, [], []

    def __call__(self, fock, error):
        self.focks = (self.focks + [fock])[-self.depth:]
        self.errors = (self.errors + [error])[-self.depth:]
        m = len(self.focks)
        e = torch.stack(self.errors).flatten(1)
        b = torch.zeros(m + 1, m + 1, dtype=torch.float64, device=fock.device)
        b[:m, :m] = e @ e.T
        b[:m, m] = b[m, :m] = 1
        b[:m, :m] += 1e-14 * torch.eye(m, dtype=torch.float64, device=fock.device)
        y = torch.zeros(m + 1, dtype=torch.float64, device=fock.device)
        y[m] = 1
        c = torch.linalg.solve(b, y)[:m]
        return torch.tensordot(c, torch.stack(self.focks), 1)


class Field:
    def __init__(self, molecule, slices):
        self.molecule, self.slices = molecule, slices
        self.geometry = 0
        self.begin()

    def begin(self):
        self.geometry += 1
        self.iteration = 0
        self.mix = Extrapolation()
        self.core = self.molecule.core(self.geometry)
        self.orbitals = self.diagonalise(self.core)

    def diagonalise(self, fock):
        s = self.molecule.ortho
        _, vectors = torch.linalg.eigh(s @ fock @ s)
        return (s @ vectors[:, :self.molecule.occupied]).contiguous()

    def two_electron(self, c):
        m = self.molecule
        half = (m.fitted.view(-1, m.n) @ c).view(m.n, m.aux, m.occupied)
        charge = torch.tensordot(half, c, dims=([0, 2], [0, 1]))
        coulomb = torch.matmul(2 * charge, m.fitted)
        parts = half.view(m.n, self.slices, -1).transpose(0, 1)
        exchange = torch.bmm(parts, parts.transpose(1, 2)).sum(0)
        return 2 * coulomb - exchange

    def step(self):
        m = self.molecule
        fock = self.core + self.two_electron(self.orbitals)
        density = self.orbitals @ self.orbitals.T
        fds = fock @ density @ m.overlap
        error = m.ortho @ (fds - fds.T) @ m.ortho
        self.orbitals = self.diagonalise(self.mix(fock, error))
        self.iteration += 1
        if error.abs().max().item() < 1e-9 or self.iteration == 14:
            self.begin()


VARIANTS = {"healthy": 16}


def build(device, slices):
    n, aux, occupied = (1280, 2048, 160) if device.type == "cuda" else (32, 48, 6)
    return Field(Molecule(n, aux, occupied, device), slices).step


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step, device, steps, limit):
    marks = []
    settle(device)
    begin = time.perf_counter()
    last = begin
    for _ in range(steps):
        step()
        now = time.perf_counter()
        marks.append((now - last) * 1e3)
        last = now
        if limit and now - begin > limit:
            break
    settle(device)
    total = (time.perf_counter() - begin) * 1e3
    return len(marks), total / len(marks), statistics.median(marks)


def record(step, device, path):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
                                record_shapes=True, with_stack=True, with_modules=True,
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--variant", choices=sorted(VARIANTS), default=sorted(VARIANTS)[-1])
    ap.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    ap.add_argument("--steps", type=int, default=STEPS)
    ap.add_argument("--max-seconds", type=float, default=None)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    step = build(device, VARIANTS[args.variant])
    for _ in range(WARMUP):
        step()
    count, mean, median = timed(step, device, args.steps, args.max_seconds)
    print(json.dumps({"program": NAME, "variant": args.variant, "steps": count,
                      "step_ms_mean": round(mean, 3), "step_ms_median": round(median, 3)}), flush=True)
    if args.trace:
        record(step, device, args.trace)


if __name__ == "__main__":
    main()
