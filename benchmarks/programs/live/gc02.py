"""Sequential recommender: item history transformer with inter-event gap features, sampled softmax."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gc02"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 450
DEFAULT_SECONDS = 50.0
WARMUP = 4

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


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


class EventLog:
    """Synthetic click streams: bursts of events with an occasional long pause."""

    def __init__(self, users, length, items, pin):
        gen = torch.Generator().manual_seed(5)
        pause = torch.rand(users, length + 1, generator=gen) < 0.2
        gap = torch.empty(users, length + 1).exponential_(1 / 8.0, generator=gen)
        gap = torch.where(pause, gap * 4000.0, gap)
        self.items = torch.randint(1, items, (users, length + 1), generator=gen)
        self.times = gap.cumsum(1)
        self.device_kind = torch.randint(0, 4, (users,), generator=gen)
        if pin:
            self.items, self.times = self.items.pin_memory(), self.times.pin_memory()
            self.device_kind = self.device_kind.pin_memory()

    def batch(self, index, size, device):
        lo = (index * size) % (self.items.size(0) - size + 1)
        part = slice(lo, lo + size)
        return (self.items[part].to(device, non_blocking=True), self.times[part].to(device, non_blocking=True),
                self.device_kind[part].to(device, non_blocking=True))


class GapFeatures(nn.Module):
    def __init__(self, dim, buckets=32, first=64.0, plain=False):
        super().__init__()
        self.buckets, self.first, self.plain = buckets, first, plain
        self.table = nn.Parameter(torch.randn(buckets, dim) * 0.02)

    def bucketise(self, times):
        gap = (times[:, 1:] - times[:, :-1]).clamp_min(0)
        level = torch.log2(gap / self.first).add_(1.0).clamp_(0, self.buckets - 1)
        return level.long()

    def forward(self, times):
        level = self.bucketise(times)
        if self.plain:
            return F.embedding(level, self.table)
        return self.table[level]


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Recommender(nn.Module):
    def __init__(self, items, length, dim, depth, plain):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        nn.init.normal_(self.items.weight, std=0.02)
        self.position = nn.Parameter(torch.randn(length, dim) * 0.02)
        self.gaps = GapFeatures(dim, plain=plain)
        self.kind = nn.Linear(4, dim, bias=False)
        self.layers = nn.ModuleList([Layer(dim, dim // 64) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)

    def forward(self, history, times, kind):
        x = self.items(history) + self.position + self.gaps(times)
        x = x + self.kind(F.one_hot(kind, 4).to(x.dtype)).unsqueeze(1)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def sampled_softmax(hidden, table, positive, negatives):
    h = hidden.flatten(0, 1)
    pos = (h * F.embedding(positive.flatten(), table)).sum(-1, keepdim=True)
    neg = h @ F.embedding(negatives, table).t()
    logits = torch.cat([pos.to(neg.dtype), neg], dim=1)
    return F.cross_entropy(logits, torch.zeros(len(h), dtype=torch.long, device=h.device))


class Trainer:
    def __init__(self, model, log, batch, items, negatives, device):
        self.model, self.log, self.batch, self.items = model, log, batch, items
        self.negatives, self.device = negatives, device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=device.type == "cuda")
        self.index = 0

    def train_one(self):
        items, times, kind = self.log.batch(self.index, self.batch, self.device)
        self.index += 1
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            hidden = self.model(items[:, :-1], times, kind)
            negatives = torch.randint(1, self.items, (self.negatives,), device=self.device)
            loss = sampled_softmax(hidden, self.model.items.weight, items[:, 1:], negatives)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(3)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    big = device.type == "cuda"
    users, length, items, dim, depth, batch, negatives = \
        (4096, 512, 60000, 512, 4, 128, 1024) if big else (64, 32, 500, 64, 2, 8, 32)
    log = EventLog(users, length, items, big)
    model = Recommender(items, length, dim, depth, plain=args.variant == "fixed").to(device)
    trainer = Trainer(model, log, batch, items, negatives, device)
    losses = []

    def step():
        losses.append(trainer.train_one())
        if len(losses) == 50:
            torch.stack(losses).mean().item()
            losses.clear()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
