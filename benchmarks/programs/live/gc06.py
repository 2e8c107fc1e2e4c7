"""Trains a fixed-point style refiner: one shared block applied again and again to a latent state."""
import argparse
import json
import contextlib
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gc06"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 650
DEFAULT_SECONDS = 50.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=DEFAULT_SECONDS)
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


class SharedBlock(nn.Module):
    """z <- z + gate * mlp(norm(z) + context)"""

    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)
        self.gate = nn.Parameter(torch.full((dim,), 0.1))

    def forward(self, z, context):
        h = F.silu(self.up(self.norm(z) + context))
        return z + self.gate * self.down(h)


class Readout(nn.Module):
    def __init__(self, dim, outputs):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.proj = nn.Linear(dim, outputs)

    def forward(self, z):
        return self.proj(self.norm(z))


class Refiner(nn.Module):
    def __init__(self, inputs, dim, hidden, outputs, rounds, device_type, dtype=torch.bfloat16):
        super().__init__()
        self.encode = nn.Linear(inputs, dim)
        self.block = SharedBlock(dim, hidden)
        self.readout = Readout(dim, outputs)
        self.rounds = rounds
        self.start = nn.Parameter(torch.zeros(dim))
        self.device_type, self.dtype = device_type, dtype

    def precision(self):
        return torch.autocast(self.device_type, dtype=self.dtype)

    def context(self, x):
        with self.precision():
            return self.encode(x)

    def refine(self, z, context):
        with self.precision():
            return self.block(z, context)

    def forward(self, x):
        context = self.context(x).float()
        z = self.start.expand(x.size(0), -1)
        trail = []
        for r in range(self.rounds):
            z = self.refine(z, context)
            if (r + 1) % 8 == 0:
                trail.append(z)
        with self.precision():
            return [self.readout(t) for t in trail], z


class Puzzles:
    def __init__(self, count, inputs, outputs, device):
        g = torch.Generator(device="cpu").manual_seed(2)
        self.x = torch.randn(count, inputs, generator=g).to(device)
        self.y = torch.randint(0, outputs, (count,), generator=g).to(device)

    def draw(self, size):
        pick = torch.randint(0, len(self.x), (size,), device=self.x.device)
        return self.x[pick], self.y[pick]


def deep_loss(outputs, y, decay=0.7):
    total = 0.0
    for age, logits in enumerate(reversed(outputs)):
        total = total + decay ** age * F.cross_entropy(logits.float(), y)
    return total


class Loop:
    def __init__(self, model, data, batch, device, around):
        self.model, self.data, self.batch, self.around = model, data, batch, around
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.02, fused=device.type == "cuda")
        self.residual = torch.zeros((), device=device)
        self.count = 0

    def train_step(self):
        x, y = self.data.draw(self.batch)
        with self.around():
            outputs, z = self.model(x)
        loss = deep_loss(outputs, y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.count += 1
        self.residual.lerp_(z.detach().float().norm(dim=-1).mean(), 0.05)
        if self.count % 100 == 0:
            self.residual.item()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(8)
    big = device.type == "cuda"
    inputs, dim, hidden, outputs, rounds, batch = (1024, 6144, 18432, 512, 24, 128) if big else (32, 64, 128, 8, 8, 8)
    with torch.device(device):
        model = Refiner(inputs, dim, hidden, outputs, rounds, device.type)
    around = contextlib.nullcontext if args.variant == "slow" else model.precision
    loop = Loop(model, Puzzles(8192, inputs, outputs, device), batch, device, around)
    run_loop(args, device, loop.train_step)


if __name__ == "__main__":
    main()
