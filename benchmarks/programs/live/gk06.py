"""Trains a wide residual network over hashed categorical features, with accumulation and averaged weights."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gk06"
CHOICES = ["healthy"]
DEFAULT_STEPS = 180
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


class Feed:
    """Reads hashed feature ids and targets on the host."""

    def __init__(self, rows, bag, vocab, targets):
        self.rng = np.random.default_rng(0)
        self.log = self.rng.integers(0, vocab, (rows * 8, bag), dtype=np.int32)
        self.answers = self.rng.integers(0, targets, rows * 8, dtype=np.int64)
        self.rows = rows

    def read(self, device):
        start = int(self.rng.integers(0, len(self.log) - self.rows))
        ids = self.log[start:start + self.rows].copy()
        answers = self.answers[start:start + self.rows].copy()
        return torch.from_numpy(ids).to(device), torch.from_numpy(answers).to(device)


class Half(nn.Linear):
    """Linear map with a float32 master weight, applied in bfloat16."""

    def forward(self, x):
        return F.linear(x, self.weight.to(torch.bfloat16))


class Norm(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = Norm(d)
        self.up = Half(d, 4 * d, bias=False)
        self.down = Half(4 * d, d, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, vocab, d, layers, targets):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, d, mode="mean")
        self.layers = nn.ModuleList(Layer(d) for _ in range(layers))
        self.norm = Norm(d)
        self.head = Half(d, targets, bias=False)

    def forward(self, ids):
        x = self.bag(ids).to(torch.bfloat16)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Session:
    def __init__(self, device):
        big = device.type == "cuda"
        self.device = device
        rows, bag, vocab, d, layers, targets = (24576, 4, 8192, 4096, 3, 512) if big else (32, 4, 64, 32, 2, 8)
        self.accumulate = 2
        self.feed = Feed(rows, bag, vocab, targets)
        with torch.device(device):
            self.model = Net(vocab, d, layers, targets)
        self.average = [p.detach().clone() for p in self.model.parameters()]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=big)
        self.count, self.losses, self.norms = 0, [], []

    def update_average(self):
        with torch.no_grad():
            for a, p in zip(self.average, self.model.parameters()):
                a.lerp_(p, 0.004)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        total = 0
        for _ in range(self.accumulate):
            ids, answers = self.feed.read(self.device)
            loss = F.cross_entropy(self.model(ids).float(), answers) / self.accumulate
            loss.backward()
            total = total + loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = 1e-4 * min(1.0, (self.count + 1) / 100)
        self.optimizer.step()
        self.losses.append(total.item())
        self.norms.append(norm.item())
        self.count += 1
        if self.count % 4 == 0:
            self.update_average()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    session = Session(device)
    run_loop(args, device, session.step)


if __name__ == "__main__":
    main()
