"""Perplexity scoring of a tokenised document stream (quality filter of a pre-training corpus)."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

def parse_args(variants, default_steps):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=default_steps)
    p.add_argument("--max-seconds", type=float, default=60.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(name, args, step):
    device = torch.device(args.device)

    def sync():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(5 if device.type == "cuda" else 1):
        step()
    sync()
    durations = []
    start = time.perf_counter()
    for _ in range(args.steps):
        tick = time.perf_counter()
        step()
        now = time.perf_counter()
        durations.append(now - tick)
        if now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": name,
        "variant": args.variant,
        "steps": len(durations),
        "step_ms_mean": round(1e3 * total / len(durations), 3),
        "step_ms_median": round(1e3 * statistics.median(durations), 3),
    }), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
            record_shapes=True, with_stack=True, with_modules=True,
        ) as prof:
            for _ in range(6):
                step()
                prof.step()
            sync()


def document_stream(vocab, mean_length, seed):
    rng = np.random.default_rng(seed)
    while True:
        length = int(rng.lognormal(np.log(mean_length), 0.6)) + 1
        yield rng.integers(2, vocab, length).tolist() + [1]


class Packer:
    """Concatenates documents and cuts windows; `reserve` tokens are read ahead of the cut."""

    def __init__(self, documents, window, reserve):
        self.documents, self.window, self.reserve = documents, window, reserve
        self.tokens = []

    def next_window(self):
        while len(self.tokens) < self.reserve:
            self.tokens.extend(next(self.documents))
        out = self.tokens[: self.window]
        self.tokens = self.tokens[self.window:]
        return out


class CursorPacker(Packer):
    def __init__(self, documents, window, reserve):
        super().__init__(documents, window, reserve)
        self.cursor = 0

    def next_window(self):
        while len(self.tokens) - self.cursor < self.reserve:
            self.tokens.extend(next(self.documents))
        out = self.tokens[self.cursor: self.cursor + self.window]
        self.cursor += self.window
        if self.cursor > 4 * self.reserve:
            del self.tokens[: self.cursor]
            self.cursor = 0
        return out


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.heads = dim // 128 if dim >= 128 else 1
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class LanguageModel(nn.Module):
    def __init__(self, vocab, dim, layers):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([Layer(dim) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        losses = []
        for row, target in zip(x, ids):
            logits = (row[:-1] @ self.embed.weight.T).float()
            losses.append(F.cross_entropy(logits, target[1:]))
        return torch.stack(losses)


def main():
    args = parse_args(["slow", "fixed"], 90)
    packer_type = {"slow": Packer, "fixed": CursorPacker}[args.variant]
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    torch.manual_seed(0)
    vocab, dim, layers, batch, window, reserve = (
        (32000, 2048, 8, 16, 2048, 600_000) if gpu else (300, 64, 2, 2, 32, 20_000))
    with torch.device(device):
        model = LanguageModel(vocab, dim, layers).to(torch.bfloat16 if gpu else torch.float32)
    model.requires_grad_(False)
    packer = packer_type(document_stream(vocab, 700, 0), window, reserve)
    kept = []

    @torch.inference_mode()
    def step():
        rows = [packer.next_window() for _ in range(batch)]
        ids = torch.tensor(rows, dtype=torch.long).to(device)
        scores = model(ids).exp().tolist()
        kept.extend(s for s in scores if s < 1e6)

    run_loop("o19", args, step)


if __name__ == "__main__":
    main()
