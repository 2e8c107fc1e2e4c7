"""Wide language model pretraining on packed documents; packing runs in the training process."""
import argparse
import hashlib
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def run_steps(name, args, step, device, warmup=5):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps = []
    begin = last = time.perf_counter()
    for i in range(args.steps):
        step(warmup + i)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - begin > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - begin) / len(laps)
    print(json.dumps({"program": name, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(mean * 1e3, 3),
                      "step_ms_median": round(statistics.median(laps) * 1e3, 3)}), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                    schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for i in range(6):
                step(warmup + len(laps) + i)
                prof.step()


def parse_args(variants, steps):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=steps)
    ap.add_argument("--max-seconds", type=float, default=0.0)
    ap.add_argument("--trace", default=None)
    return ap.parse_args()


class Packer:
    """Best-fit packing of a stream of documents into rows of fixed length, repeated documents dropped."""

    def __init__(self, vocab, rows, length, documents, seed=0):
        self.rng = np.random.default_rng(seed)
        self.vocab, self.rows, self.length, self.documents = vocab, rows, length, documents
        self.seen = set()

    def document(self):
        n = int(np.clip(self.rng.lognormal(4.0, 1.0), 8, self.length - 1))
        return self.rng.integers(1, self.vocab, n, dtype=np.int64)

    def is_new(self, doc):
        mark = hashlib.blake2b(doc.tobytes(), digest_size=8).digest()
        if mark in self.seen:
            return False
        if len(self.seen) > 20_000:
            self.seen.clear()
        self.seen.add(mark)
        return True

    def batch(self):
        docs = [d for d in (self.document() for _ in range(self.documents)) if self.is_new(d)]
        docs.sort(key=len, reverse=True)
        room = [self.length] * self.rows
        parts = [[] for _ in range(self.rows)]
        for doc in docs:
            best, left = -1, self.length + 1
            for r, free in enumerate(room):
                if len(doc) + 1 <= free < left:
                    best, left = r, free
            if best >= 0:
                parts[best].append(doc)
                room[best] -= len(doc) + 1
        out = np.zeros((self.rows, self.length + 1), dtype=np.int64)
        for r, group in enumerate(parts):
            at = 0
            for doc in group:
                out[r, at:at + len(doc)] = doc
                at += len(doc) + 1
        return torch.from_numpy(out)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LanguageModel(nn.Module):
    def __init__(self, vocab, dim, heads, depth, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(length, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        x = (self.embed(tokens) + self.pos).to(torch.bfloat16)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    args = parse_args(["healthy"], 55)
    device = torch.device(args.device)
    big = args.device == "cuda"
    vocab, dim, heads, depth, rows, length, documents = (32000, 8192, 64, 2, 4, 2048, 400) if big else (256, 32, 2, 2, 2, 64, 16)
    torch.manual_seed(0)
    with device:
        model = LanguageModel(vocab, dim, heads, depth, length)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    packer = Packer(vocab, rows, length, documents)
    losses, shown = [], []

    def step(i):
        batch = packer.batch()
        if big:
            batch = batch.pin_memory()
        batch = batch.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten(), ignore_index=0)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
        if len(losses) > 8:
            shown.append(losses.pop(0).item())

    run_steps("x10", args, step, device)


if __name__ == "__main__":
    main()
