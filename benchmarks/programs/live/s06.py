"""Exact dense retrieval service: a small text encoder and a scan of the sharded passage matrix, compiled as one step."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = self.n1(x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)))
        return self.n2(x + self.down(F.gelu(self.up(x))))


class QueryEncoder(nn.Module):
    def __init__(self, vocab, dim, depth, heads, length):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))

    def forward(self, ids):
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.normalize(x.mean(1), dim=-1)


def scan(query, shards, k):
    scores, rows, base = [], [], 0
    for shard in shards:
        s, r = torch.topk(query @ shard.t(), k)
        scores.append(s)
        rows.append(r + base)
        base += shard.shape[0]
    best, at = torch.topk(torch.cat(scores, 1), k)
    return best, torch.cat(rows, 1).gather(1, at)


class SearchService:
    """The shards belong to the service, so that a refreshed index can be swapped in between two requests."""

    def __init__(self, encoder, shards, k):
        self.shards = shards

        def search(ids, shards):
            return scan(encoder(ids), shards, k)

        self.search = torch.compile(search, mode="reduce-overhead")

    def __call__(self, ids):
        return self.search(ids, self.shards)


class Searcher(nn.Module):
    def __init__(self, encoder, shards, k):
        super().__init__()
        self.encoder, self.k, self.count = encoder, k, len(shards)
        for i, shard in enumerate(shards):
            self.register_buffer(f"shard{i}", shard, persistent=False)

    def forward(self, ids):
        return scan(self.encoder(ids), [getattr(self, f"shard{i}") for i in range(self.count)], self.k)


class ModuleService:
    def __init__(self, encoder, shards, k):
        self.search = torch.compile(Searcher(encoder, shards, k), mode="reduce-overhead")

    def __call__(self, ids):
        return self.search(ids)


@torch.no_grad()
def make_shards(count, rows, dim, device, dtype):
    shards = []
    for _ in range(count):
        shard = torch.empty(rows, dim, device=device, dtype=dtype)
        for part in shard.split(1 << 19):
            part.copy_(F.normalize(torch.randn(part.shape, device=device), dim=-1))
        shards.append(shard)
    return shards


def build(args, device):
    tiny = device.type == "cpu"
    torch.manual_seed(0)
    dtype = torch.float32 if tiny else torch.bfloat16
    vocab, dim, depth, heads, length, batch, k = (200, 32, 1, 2, 8, 4, 5) if tiny else (30522, 384, 12, 12, 48, 64, 100)
    encoder = QueryEncoder(vocab, dim, depth, heads, length).to(device, dtype).eval().requires_grad_(False)
    shards = make_shards(3, 500 if tiny else 4_000_000, dim, device, dtype)
    # -- variant
    service = {"slow": SearchService, "fixed": ModuleService}[args.variant](encoder, shards, k)
    # --
    pool = [torch.randint(0, vocab, (batch, length)) for _ in range(16)]
    if not tiny:
        pool = [t.pin_memory() for t in pool]
    state = {"n": 0}

    @torch.no_grad()
    def step():
        ids = pool[state["n"] % len(pool)].to(device, non_blocking=True)
        state["n"] += 1
        best, rows = service(ids)
        return best.float().cpu(), rows.cpu()

    return step


def measure(program, args, step, device):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for _ in range(args.warmup):
        step()
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step()
        marks.append(time.perf_counter())
        if args.max_seconds and marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    end = time.perf_counter()
    gaps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": program, "variant": args.variant, "steps": len(gaps),
        "step_ms_mean": round((end - marks[0]) * 1e3 / len(gaps), 3),
        "step_ms_median": round(statistics.median(gaps) * 1e3, 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for _ in range(6):
                step()
                prof.step()


def parse_args(variants, steps, tiny_steps=4, warmup=5):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    args = p.parse_args()
    if args.steps is None:
        args.steps = steps[args.variant] if args.device == "cuda" else tiny_steps
    args.warmup = warmup if args.device == "cuda" else 1
    return args


if __name__ == "__main__":
    args = parse_args(["slow", "fixed"], {"slow": 700, "fixed": 1200}, warmup=8)
    device = torch.device(args.device)
    measure("s06", args, build(args, device), device)
