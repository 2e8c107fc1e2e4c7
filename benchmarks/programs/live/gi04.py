"""Node embeddings of a user-item graph by iterated random projection, computed in column blocks."""
import argparse
import json
import statistics
import time

import torch

PROGRAM = "gi04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 4000
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


def interactions(n_user, n_item, count, device):
    gen = torch.Generator(device=device).manual_seed(11)
    user = torch.randint(0, n_user, (count,), generator=gen, device=device)
    skew = torch.rand(count, generator=gen, device=device).pow(1.5)
    item = (skew * n_item).long().clamp_(max=n_item - 1)
    return user, item


def normalised_adjacency(n_user, n_item, count, device):
    n = n_user + n_item
    user, item = interactions(n_user, n_item, count, device)
    row = torch.cat((user, item + n_user))
    col = torch.cat((item + n_user, user))
    degree = torch.bincount(row, minlength=n).clamp_(min=1).float()
    scale = degree.rsqrt()
    weight = scale[row] * scale[col]
    return torch.sparse_coo_tensor(torch.stack((row, col)), weight, (n, n), check_invariants=False), degree


class ProjectionEmbedder:
    HOPS = (0.3, 1.0, 0.7)

    def __init__(self, args, device):
        big = device.type == "cuda"
        self.n_user, self.n_item = (700_000, 300_000) if big else (3000, 1000)
        adj, degree = normalised_adjacency(self.n_user, self.n_item, 12_000_000 if big else 40_000, device)
        self.adj = adj.coalesce() if args.variant == "fixed" else adj
        self.prior = degree.pow(-0.2).unsqueeze(1)
        self.n = self.n_user + self.n_item
        self.width = 32
        self.gen = torch.Generator(device=device).manual_seed(5)
        self.device = device
        self.store = torch.empty(self.n, 8 * self.width, dtype=torch.float16, device=device)
        self.block = 0
        self.energy = torch.zeros((), device=device)

    def projection(self):
        z = torch.randint(-1, 2, (self.n, self.width), generator=self.gen, device=self.device,
                          dtype=torch.int8).float()
        return z * self.prior

    def next_block(self):
        x = self.projection()
        acc = torch.zeros_like(x)
        for weight in self.HOPS:
            x = torch.sparse.mm(self.adj, x)
            norm = torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_(min=1e-8)
            acc.addcdiv_(x, norm, value=weight)
        slot = (self.block % 8) * self.width
        self.store[:, slot:slot + self.width] = acc
        self.energy.add_(acc.square().mean())
        self.block += 1


def main():
    args = parse_args()
    device = torch.device(args.device)
    embedder = ProjectionEmbedder(args, device)
    run_loop(args, device, embedder.next_block)


if __name__ == "__main__":
    main()
