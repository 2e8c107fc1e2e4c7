"""Two-tower retrieval: a user encoder against a frozen catalogue, with mined negatives."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gl08"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 500
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=50.0)
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


class EncoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class UserTower(nn.Module):
    def __init__(self, content, width, depth, heads, history):
        super().__init__()
        self.inp = nn.Linear(content, width)
        self.place = nn.Parameter(0.02 * torch.randn(history, width))
        self.layers = nn.ModuleList([EncoderLayer(width, heads) for _ in range(depth)])
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, content)

    def forward(self, items):
        x = self.inp(items) + self.place
        for layer in self.layers:
            x = layer(x)
        return F.normalize(self.out(self.norm(x[:, -1])).float(), dim=-1)


class Catalogue:
    def __init__(self, count, content, device):
        gen = torch.Generator(device=device).manual_seed(6)
        self.vectors = torch.randn(count, content, generator=gen, device=device)
        self.count = count

    def lookup(self, ids):
        return F.embedding(ids, self.vectors)


class Miner:
    """Keeps a pool of item ids that recent users score highly, renewed as they come."""

    def __init__(self, catalogue, candidates, keep, per_batch, generator, device):
        self.catalogue, self.candidates, self.keep = catalogue, candidates, keep
        self.per_batch, self.device = per_batch, device
        self.generator = generator
        self.rng = np.random.default_rng(8)
        self.pool = self.draw()[:keep]

    def draw(self):
        return self.generator.choice(self.catalogue.count, size=self.candidates, replace=False)

    @torch.no_grad()
    def renew(self, users):
        ids = torch.from_numpy(self.draw()).to(self.device)
        vectors = F.normalize(self.catalogue.lookup(ids), dim=-1)
        score = (vectors @ users.float().t()).amax(dim=1)
        best = score.topk(self.keep).indices
        self.pool = ids.index_select(0, best).cpu().numpy()

    def sample(self):
        picked = self.pool[self.rng.integers(0, self.keep, self.per_batch)]
        return torch.from_numpy(picked).to(self.device, non_blocking=True)


class Sessions:
    """Click histories; the last click is the one to retrieve."""

    def __init__(self, users, history, items, device):
        gen = torch.Generator(device=device).manual_seed(9)
        self.clicks = torch.randint(0, items, (users, history + 1), generator=gen, device=device)
        self.device = device

    def batch(self, size):
        rows = torch.randint(0, self.clicks.shape[0], (size,), device=self.device)
        clicks = self.clicks.index_select(0, rows)
        return clicks[:, :-1], clicks[:, -1]


def softmax_loss(users, positive, shared, temperature):
    own = (users * positive).sum(dim=-1, keepdim=True)
    others = users @ shared.t()
    logits = torch.cat([own, others], dim=1) / temperature
    wanted = torch.zeros(users.shape[0], dtype=torch.long, device=users.device)
    return F.cross_entropy(logits, wanted), (own > others.amax(dim=1, keepdim=True)).float().mean()


class Trainer:
    def __init__(self, tower, catalogue, sessions, miner, batch, device):
        self.tower, self.catalogue, self.sessions, self.miner = tower, catalogue, sessions, miner
        self.batch, self.device = batch, device
        self.opt = torch.optim.AdamW(tower.parameters(), lr=2e-4, fused=device.type == "cuda")
        self.accuracy = torch.zeros((), device=device)
        self.done = 0

    def step(self):
        history, target = self.sessions.batch(self.batch)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            users = self.tower(self.catalogue.lookup(history))
        self.miner.renew(users)
        shared = F.normalize(self.catalogue.lookup(self.miner.sample()), dim=-1)
        positive = F.normalize(self.catalogue.lookup(target), dim=-1)
        loss, accuracy = softmax_loss(users, positive, shared, 0.07)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.tower.parameters(), 1.0)
        self.opt.step()
        self.accuracy.lerp_(accuracy, 0.02)
        self.done += 1


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    np.random.seed(0)
    items, content, users, history, batch = 3_000_000, 64, 500_000, 128, 512
    shape, mining = dict(width=512, depth=6, heads=8), dict(candidates=49152, keep=16384, per_batch=4096)
    if device.type == "cpu":
        items, content, users, history, batch = 5_000, 16, 500, 12, 16
        shape, mining = dict(width=32, depth=1, heads=2), dict(candidates=256, keep=64, per_batch=32)
    generator = np.random.default_rng(0) if args.variant == "fixed" else np.random
    catalogue = Catalogue(items, content, device)
    sessions = Sessions(users, history, items, device)
    miner = Miner(catalogue, generator=generator, device=device, **mining)
    tower = UserTower(content, history=history, **shape).to(device)
    trainer = Trainer(tower, catalogue, sessions, miner, batch, device)
    run_loop(args, device, trainer.step)


if __name__ == "__main__":
    main()
