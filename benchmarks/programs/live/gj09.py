"""Post-training a critic on rollouts of uneven length, packed into rows of fixed size."""
import argparse
import json
import statistics
import time
from bisect import bisect_left, insort

import numpy as np

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gj09"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 200
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


class Packer:
    """Best fit, longest first: every rollout goes to the fullest row that still has room."""

    def __init__(self, capacity, variant):
        self.capacity = capacity
        self.place = self.place_sorted if variant == "fixed" else self.place_scan

    def place_scan(self, order, lengths):
        rooms, rows = [], []
        for i in order:
            n = lengths[i]
            best, where = self.capacity + 1, -1
            for row, room in enumerate(rooms):
                if n <= room < best:
                    best, where = room, row
            if where < 0:
                rooms.append(self.capacity - n)
                rows.append([i])
            else:
                rooms[where] -= n
                rows[where].append(i)
        return rows

    def place_sorted(self, order, lengths):
        rooms, rows = [], []
        for i in order:
            n = lengths[i]
            at = bisect_left(rooms, (n, -1))
            if at == len(rooms):
                insort(rooms, (self.capacity - n, len(rows)))
                rows.append([i])
            else:
                room, row = rooms.pop(at)
                insort(rooms, (room - n, row))
                rows[row].append(i)
        return rows

    def pack(self, rollouts):
        lengths = [len(r["tokens"]) for r in rollouts]
        order = sorted(range(len(rollouts)), key=lengths.__getitem__, reverse=True)
        rows = self.place(order, lengths)
        tokens = np.zeros((len(rows), self.capacity), dtype=np.int64)
        target = np.zeros((len(rows), self.capacity), dtype=np.float32)
        weight = np.zeros((len(rows), self.capacity), dtype=np.float32)
        for k, row in enumerate(rows):
            flat = np.concatenate([rollouts[i]["tokens"] for i in row])
            tokens[k, :len(flat)] = flat
            target[k, :len(flat)] = np.repeat([rollouts[i]["reward"] for i in row], [lengths[i] for i in row])
            weight[k, :len(flat)] = 1.0
        return tokens, target, weight


class Actor:
    """Stands in for the generation side."""

    def __init__(self, count, vocab, longest, seed=0):
        self.rng = np.random.default_rng(seed)
        self.count, self.vocab, self.longest = count, vocab, longest

    def collect(self):
        lengths = np.clip(self.rng.lognormal(3.9, 0.7, self.count), 4, self.longest).astype(np.int64)
        flat = self.rng.integers(1, self.vocab, int(lengths.sum()))
        rewards = self.rng.normal(size=self.count)
        ends = np.cumsum(lengths)
        return [{"tokens": flat[e - n:e], "reward": r} for e, n, r in zip(ends, lengths, rewards)]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Critic(nn.Module):
    def __init__(self, vocab, width, heads, depth):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.value = nn.Linear(width, 1)

    def forward(self, tokens):
        return self.value(self.blocks(self.embed(tokens)))[..., 0]


class CriticTrainer:
    def __init__(self, args, device):
        big = device.type == "cuda"
        self.device = device
        capacity = 1024 if big else 256
        self.actor = Actor(8192 if big else 64, 4096, capacity)
        self.packer = Packer(capacity, args.variant)
        self.model = Critic(4096, 256 if big else 32, 4, 3 if big else 1).to(device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.log = []

    def step(self):
        arrays = self.packer.pack(self.actor.collect())
        tokens, target, weight = (torch.from_numpy(a).to(self.device) for a in arrays)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            value = self.model(tokens)
        loss = ((value.float() - target).square() * weight).sum() / weight.sum()
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        grad = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.log.append({"loss": loss.item(), "grad": grad.item(), "fill": arrays[2].mean()})


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    trainer = CriticTrainer(args, device)
    run_loop(args, device, trainer.step)
    print(f"# loss {trainer.log[-1]['loss']:.4f} fill {trainer.log[-1]['fill']:.3f}", flush=True)


if __name__ == "__main__":
    main()
