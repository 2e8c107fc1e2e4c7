"""Finite elements: implicit heat conduction in a plate under a moving laser, with conjugate gradients."""
import argparse
import json
import statistics
import time

import math

import torch

PROGRAM = "gk03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 3500
WARMUP = 4


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


def quad_mesh(n, device):
    node = torch.arange((n + 1) * (n + 1), device=device).view(n + 1, n + 1)
    return torch.stack([node[:-1, :-1], node[:-1, 1:], node[1:, 1:], node[1:, :-1]], -1).reshape(-1, 4)


def assemble(cells, local, weight, nodes):
    """Global sparse matrix of the 4x4 element matrices weight[e] * local."""
    rows = cells[:, :, None].expand(-1, 4, 4).reshape(-1)
    cols = cells[:, None, :].expand(-1, 4, 4).reshape(-1)
    values = (weight[:, None, None] * local).reshape(-1)
    return torch.sparse_coo_tensor(torch.stack([rows, cols]), values, (nodes, nodes))


class Plate:
    def __init__(self, n, iterations, device, variant):
        self.n, self.iterations, self.device = n, iterations, device
        self.nodes, h, self.dt = (n + 1) ** 2, 1.0 / n, 2e-5
        cells = quad_mesh(n, device)
        mass = torch.tensor([[4., 2, 1, 2], [2, 4, 2, 1], [1, 2, 4, 2], [2, 1, 2, 4]], device=device) * (h * h / 36)
        stiff = torch.tensor([[4., -1, -2, -1], [-1, 4, -1, -2], [-2, -1, 4, -1], [-1, -2, -1, 4]], device=device) / 6
        density = 1 + 0.2 * torch.rand(len(cells), device=device)
        conductivity = 0.5 + torch.rand(len(cells), device=device)
        self.M = assemble(cells, mass, density, self.nodes)
        K = assemble(cells, stiff, conductivity, self.nodes)
        if variant == "fixed":
            self.M = self.M.coalesce()
        system = (self.M + self.dt * K).coalesce()
        idx = system.indices()
        diagonal = idx[0] == idx[1]
        self.inv_diag = 1 / system.values()[diagonal]
        self.A = system.to_sparse_csr()
        axis = torch.linspace(0, 1, n + 1, device=device)
        self.y, self.x = (g.reshape(-1) for g in torch.meshgrid(axis, axis, indexing="ij"))
        self.u = torch.zeros(self.nodes, device=device)
        self.time, self.peak = 0.0, torch.zeros((), device=device)

    def source(self):
        cx, cy = 0.5 + 0.3 * math.cos(40 * self.time), 0.5 + 0.3 * math.sin(40 * self.time)
        return 500 * torch.exp(-((self.x - cx) ** 2 + (self.y - cy) ** 2) / 2e-3)

    def solve(self, b, x):
        r = b - self.A @ x
        z = self.inv_diag * r
        p, rz = z.clone(), torch.dot(r, z)
        for _ in range(self.iterations):
            q = self.A @ p
            alpha = rz / torch.dot(p, q).clamp(min=1e-30)
            x = torch.addcmul(x, p, alpha)
            r = torch.addcmul(r, q, alpha, value=-1)
            z = self.inv_diag * r
            new = torch.dot(r, z)
            p = torch.addcmul(z, p, new / rz.clamp(min=1e-30))
            rz = new
        return x

    def advance(self):
        b = self.M @ (self.u + self.dt * self.source())
        self.u = self.solve(b, self.u)
        self.time += self.dt
        self.peak = torch.maximum(self.peak, self.u.amax())


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    n, iterations = (1100, 24) if device.type == "cuda" else (24, 4)
    plate = Plate(n, iterations, device, args.variant)
    run_loop(args, device, plate.advance)


if __name__ == "__main__":
    main()
