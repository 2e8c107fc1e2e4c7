"""Text-conditioned latent denoiser; caption embeddings come from a frozen encoder and go through an on-disk cache."""
import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gb07"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 400
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


class Block(nn.Module):
    def __init__(self, dim, context=None):
        super().__init__()
        self.heads = max(1, dim // 64)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.cross = context is not None
        if self.cross:
            self.norm_c = nn.LayerNorm(dim)
            self.q_c, self.kv_c, self.out_c = nn.Linear(dim, dim), nn.Linear(context, 2 * dim), nn.Linear(dim, dim)

    def split(self, x, parts):
        b, n, _ = x.shape
        return x.view(b, n, parts, self.heads, -1).permute(2, 0, 3, 1, 4)

    def attend(self, q, k, v):
        y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)

    def forward(self, x, context=None):
        x = x + self.out(self.attend(*self.split(self.qkv(self.norm1(x)), 3)))
        if self.cross:
            q, = self.split(self.q_c(self.norm_c(x)), 1)
            k, v = self.split(self.kv_c(context), 2)
            x = x + self.out_c(self.attend(q, k, v))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TextEncoder(nn.Module):
    def __init__(self, vocab, dim, depth, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.position = nn.Parameter(torch.randn(length, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        x = self.embed(ids) + self.position
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return x, x.mean(dim=1)


class Denoiser(nn.Module):
    def __init__(self, channels, dim, depth, context):
        super().__init__()
        self.inp, self.outp = nn.Linear(channels, dim), nn.Linear(dim, channels)
        self.cond = nn.Linear(context + 1, dim)
        self.blocks = nn.ModuleList(Block(dim, context) for _ in range(depth))

    def forward(self, latents, sigma, tokens, pooled):
        x = self.inp(latents) + self.cond(torch.cat([pooled, sigma], dim=-1)).unsqueeze(1)
        for block in self.blocks:
            x = block(x, tokens)
        return self.outp(x)


class EmbeddingCache:
    """One file per caption, oldest files dropped when the budget is exceeded."""

    def __init__(self, root, encoder, device, budget, variant):
        self.root, self.encoder, self.device, self.budget = root, encoder, device, budget
        self.variant = variant
        self.entries = OrderedDict()

    def path(self, key):
        return os.path.join(self.root, f"{key:08x}.pt")

    @torch.no_grad()
    def encode_missing(self, captions):
        keys = [k for k in captions if k not in self.entries]
        if not keys:
            return
        ids = torch.tensor([captions[k] for k in keys], device=self.device)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            tokens, pooled = self.encoder(ids)
        self.write(keys, tokens.float().cpu(), pooled.float().cpu())

    def write(self, keys, tokens, pooled):
        for row, key in enumerate(keys):
            entry = {"tokens": tokens[row], "pooled": pooled[row]}
            if self.variant == "fixed":
                entry = {name: value.clone() for name, value in entry.items()}
            torch.save(entry, self.path(key))
            self.entries[key] = True
        while len(self.entries) > self.budget:
            stale, _ = self.entries.popitem(last=False)
            os.remove(self.path(stale))

    def read(self, keys):
        rows = [torch.load(self.path(k), map_location="cpu", weights_only=True) for k in keys]
        tokens = torch.stack([r["tokens"] for r in rows])
        pooled = torch.stack([r["pooled"] for r in rows])
        return tokens.to(self.device, non_blocking=True), pooled.to(self.device, non_blocking=True)


class CaptionStream:
    def __init__(self, vocab, length, batch, fresh):
        self.vocab, self.length, self.batch, self.fresh = vocab, length, batch, fresh
        self.rng = random.Random(11)
        self.recent, self.serial = [], 0

    def new_caption(self):
        self.serial += 1
        base = self.serial * 2654435761 % self.vocab
        return self.serial, [(base + 37 * i * i) % self.vocab for i in range(self.length)]

    def next_batch(self):
        count = self.batch if not self.recent else self.rng.randint(*self.fresh)
        fresh = [self.new_caption() for _ in range(count)]
        pool = self.recent[-4 * self.batch:]
        known = self.rng.sample(pool, min(len(pool), self.batch - count))
        self.recent = (self.recent + fresh)[-4 * self.batch:]
        return dict(known + fresh)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    vocab, length, width = (32_000, 77, 1024) if big else (500, 8, 64)
    batch, tokens, channels = (24, 256, 16) if big else (4, 16, 4)
    encoder = TextEncoder(vocab, width, 8 if big else 1, length).to(device).eval().requires_grad_(False)
    denoiser = Denoiser(channels, 1024 if big else 64, 8 if big else 1, width).to(device)
    optimizer = torch.optim.AdamW(denoiser.parameters(), lr=1e-4, fused=big)
    stream = CaptionStream(vocab, length, batch, (6, 14) if big else (1, 3))
    workdir = tempfile.TemporaryDirectory(prefix="captions_")
    cache = EmbeddingCache(workdir.name, encoder, device, 160 if big else 32, args.variant)
    gen = torch.Generator(device=device).manual_seed(2)
    state = {"n": 0}

    def step():
        captions = stream.next_batch()
        cache.encode_missing(captions)
        text, pooled = cache.read(list(captions))
        rows = text.shape[0]
        clean = torch.randn(rows, tokens, channels, device=device, generator=gen)
        sigma = torch.rand(rows, 1, device=device, generator=gen)
        noise = torch.randn(clean.shape, device=device, generator=gen)
        mixed = torch.lerp(clean, noise, sigma.unsqueeze(-1))
        with torch.autocast(device.type, dtype=torch.bfloat16):
            guess = denoiser(mixed, sigma, text, pooled)
        loss = F.mse_loss(guess.float(), noise - clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        state["n"] += 1
        if state["n"] % 50 == 0:
            print(json.dumps({"iter": state["n"], "loss": round(loss.item(), 4)}), flush=True)

    with workdir:
        run_loop(args, device, step)


if __name__ == "__main__":
    main()
