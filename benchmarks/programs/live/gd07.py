"""Trains a wide, shallow language model on packed documents, with per-layer gradient statistics."""
import argparse
import collections
import json
import random
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gd07"
CHOICES = ["healthy"]
DEFAULT_STEPS = 280
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=45.0)
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


class Packer:
    """Fills rows of a fixed length with documents of varying length."""

    def __init__(self, vocab, length, rows, seed=5):
        self.random = random.Random(seed)
        self.length, self.rows = length, rows
        self.pool = torch.randint(4, vocab, (1 << 20,))
        self.rest = collections.deque()

    def document(self):
        size = min(int(self.random.lognormvariate(6.0, 0.8)) + 8, self.length)
        start = self.random.randrange(len(self.pool) - size)
        return self.pool[start:start + size]

    def batch(self):
        need, parts = self.rows * self.length, []
        while need > 0:
            doc = self.rest.popleft() if self.rest else self.document()
            if len(doc) > need:
                self.rest.append(doc[need:])
                doc = doc[:need]
            parts.append(doc)
            need -= len(doc)
        return torch.cat(parts).view(self.rows, self.length)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        n, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, vocab, length, dim, heads, depth):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        nn.init.normal_(self.token.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)

    def forward(self, tokens):
        x = self.token(tokens) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)


class Monitor:
    def __init__(self, model):
        self.model = model
        self.norms = collections.defaultdict(lambda: collections.deque(maxlen=100))
        self.losses = collections.deque(maxlen=100)

    def record(self, loss):
        self.losses.append(loss.item())
        for name, p in self.model.named_parameters():
            if p.grad is not None and p.dim() == 2:
                self.norms[name].append(p.grad.norm().item())


class Trainer:
    def __init__(self, model, packer, device):
        self.model, self.packer, self.device = model, packer, device
        self.monitor = Monitor(model)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda i: min(1.0, (i + 1) / 100))

    def step(self):
        tokens = self.packer.batch().to(self.device)
        logits = self.model(tokens)
        targets = tokens.roll(-1, 1)
        targets[:, -1] = -100
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.monitor.record(loss)
        self.optimizer.step()
        self.scheduler.step()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    vocab, length, rows, dim, heads, depth = (32768, 2048, 8, 4096, 32, 4) if big else (64, 16, 2, 16, 2, 1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = Model(vocab, length, dim, heads, depth)
    torch.set_default_dtype(torch.float32)
    run_loop(args, device, Trainer(model, Packer(vocab, length, rows), device).step)


if __name__ == "__main__":
    main()
