"""Lattice-Boltzmann flow (D3Q19, BGK) in a periodic box, continued from a saved state."""
import argparse
import json
import itertools
import statistics
import time

import torch

PROGRAM = "gi06"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 6000
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=40.0)
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


def velocity_set():
    dirs = [d for d in itertools.product((-1, 0, 1), repeat=3) if sum(map(abs, d)) <= 2]
    dirs.sort(key=lambda d: sum(map(abs, d)))
    weight = {0: 1 / 3, 1: 1 / 18, 2: 1 / 36}
    return dirs, [weight[sum(map(abs, d))] for d in dirs]


DIRS, WEIGHTS = velocity_set()


def saved_state(shape, device):
    """What the restart file holds: populations per cell, shape (nx, ny, nz, 19)."""
    gen = torch.Generator(device=device).manual_seed(2)
    w = torch.tensor(WEIGHTS, device=device)
    state = w.expand(*shape, len(WEIGHTS)).clone()
    state.mul_(1.0 + 0.01 * torch.randn(*shape, 1, generator=gen, device=device))
    return state


def restore(state, variant):
    f = state.movedim(-1, 0)
    if variant == "fixed":
        f = f.contiguous()
    return f


def signed_sum(f, axis):
    total = None
    for i, d in enumerate(DIRS):
        if d[axis] == 0:
            continue
        if total is None:
            total = f[i] * d[axis]
        else:
            total.add_(f[i], alpha=d[axis])
    return total


def density(f):
    rho = f[0].clone(memory_format=torch.contiguous_format)
    for i in range(1, len(DIRS)):
        rho.add_(f[i])
    return rho


def collide(f, omega, push):
    rho = density(f)
    inv = rho.reciprocal()
    u = [signed_sum(f, axis).mul_(inv) for axis in range(3)]
    u[0].add_(push)
    base = u[0].square().addcmul_(u[1], u[1]).addcmul_(u[2], u[2]).mul_(-1.5).add_(1.0)
    for i, (d, w) in enumerate(zip(DIRS, WEIGHTS)):
        feq = base.clone()
        terms = [(c, u[a]) for a, c in enumerate(d) if c != 0]
        if terms:
            cu = terms[0][1] * terms[0][0]
            for c, v in terms[1:]:
                cu.add_(v, alpha=c)
            feq.add_(cu, alpha=3.0).addcmul_(cu, cu, value=4.5)
        feq.mul_(rho)
        f[i].lerp_(feq.mul_(w), omega)
    return rho, u


def stream(f):
    for i, d in enumerate(DIRS):
        axes = [a for a in range(3) if d[a] != 0]
        if axes:
            f[i].copy_(torch.roll(f[i], [d[a] for a in axes], axes))


def main():
    args = parse_args()
    device = torch.device(args.device)
    shape = (256, 224, 224) if device.type == "cuda" else (24, 20, 20)
    f = restore(saved_state(shape, device), args.variant)
    mass, ticks = [], itertools.count(1)

    @torch.no_grad()
    def step():
        rho, _ = collide(f, omega=1.2, push=1e-5)
        stream(f)
        if next(ticks) % 100 == 0:
            mass.append(rho.mean().item())

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
