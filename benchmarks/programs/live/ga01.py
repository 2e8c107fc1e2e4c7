"""Masked-span pretraining of a small encoder with learned, distance-bucketed attention bias."""
import argparse
import json
import math
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ga01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 450
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


@dataclass
class Config:
    vocab: int = 16384
    width: int = 768
    heads: int = 12
    layers: int = 5
    ff: int = 3072
    length: int = 384
    batch: int = 16
    buckets: int = 32
    reach: int = 128


def distance_buckets(length, buckets, reach):
    """Signed relative positions, exact when near and logarithmic when far."""
    rel = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    half = buckets // 2
    side = (rel > 0).long() * half
    dist = rel.abs()
    near = half // 2
    scale = (half - near) / math.log(reach / near)
    far = near + (torch.log(dist.clamp(min=1).float() / near) * scale).long()
    far = far.clamp(max=half - 1)
    return side + torch.where(dist < near, dist, far)


class DistanceBias(nn.Module):
    def __init__(self, cfg, lookup):
        super().__init__()
        self.lookup = lookup
        self.table = nn.Parameter(torch.randn(cfg.buckets, cfg.heads) * 0.02)
        self.register_buffer("buckets", distance_buckets(cfg.length, cfg.buckets, cfg.reach), persistent=False)

    def forward(self, length, dtype):
        where = self.buckets[:length, :length]
        if self.lookup == "fixed":
            values = F.embedding(where, self.table)
        else:
            values = self.table[where]
        return values.permute(2, 0, 1).unsqueeze(0).to(dtype)


class Block(nn.Module):
    def __init__(self, cfg, lookup):
        super().__init__()
        self.heads = cfg.heads
        self.norm1 = nn.LayerNorm(cfg.width)
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width, bias=False)
        self.out = nn.Linear(cfg.width, cfg.width, bias=False)
        self.bias = DistanceBias(cfg, lookup)
        self.norm2 = nn.LayerNorm(cfg.width)
        self.up = nn.Linear(cfg.width, cfg.ff)
        self.down = nn.Linear(cfg.ff, cfg.width)

    def attend(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.bias(n, q.dtype).expand(b, -1, -1, -1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(y.transpose(1, 2).reshape(b, n, w))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(self, cfg, lookup):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg, lookup) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.vocab, bias=False)

    def forward(self, ids, keep):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        picked = self.norm(x).flatten(0, 1).index_select(0, keep)
        return self.head(picked)


class SpanMasker:
    """Picks a fixed number of positions in each sequence and hides them."""

    def __init__(self, cfg, device, ratio=0.15):
        self.count = int(cfg.length * ratio)
        self.cfg, self.device, self.mask_id = cfg, device, cfg.vocab - 1

    def __call__(self, ids):
        scores = torch.rand(ids.shape, device=self.device)
        chosen = scores.topk(self.count, dim=1).indices
        offset = torch.arange(ids.shape[0], device=self.device)[:, None] * ids.shape[1]
        flat = (chosen + offset).flatten()
        target = ids.flatten().index_select(0, flat)
        hidden = ids.scatter(1, chosen, self.mask_id)
        return hidden, flat, target


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = torch.device(args.device)
    cfg = Config()
    if device.type == "cpu":
        cfg = Config(vocab=512, width=96, heads=4, layers=2, ff=192, length=64, batch=2)
    model = Encoder(cfg, args.variant).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=device.type == "cuda")
    masker = SpanMasker(cfg, device)
    corpus = torch.randint(0, cfg.vocab - 1, (64 * cfg.batch, cfg.length), device=device)
    position = 0

    def step():
        nonlocal position
        ids = corpus[position:position + cfg.batch]
        position = (position + cfg.batch) % corpus.shape[0]
        hidden, keep, target = masker(ids)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(hidden, keep)
        loss = F.cross_entropy(logits.float(), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
