"""Interactive single-stream decoding of a wide decoder, one token at a time, streamed to the client."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def parse_args(variants, default_steps, cpu_steps=4):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=None)
    ap.add_argument("--max-seconds", type=float, default=1e9)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    if args.steps is None:
        args.steps = default_steps if args.device == "cuda" else cpu_steps
    return args


def run_loop(args, step, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    count = 0
    for _ in range(warmup):
        step(count)
        count += 1
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step(count)
        count += 1
        marks.append(time.perf_counter())
        if marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - marks[0]
    laps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": os.path.splitext(os.path.basename(__file__))[0],
        "variant": args.variant,
        "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 4),
        "step_ms_median": round(1e3 * statistics.median(laps), 4),
    }), flush=True)
    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        with profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                     schedule=schedule(wait=0, warmup=2, active=4, repeat=1),
                     on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                step(count)
                count += 1
                prof.step()
        sync()


class Layer(nn.Module):
    def __init__(self, dim, heads, kv_heads, hidden):
        super().__init__()
        self.kv_heads, self.group, self.hd = kv_heads, heads // kv_heads, dim // heads
        self.norm1 = nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, (heads + 2 * kv_heads) * self.hd, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.norm2 = nn.RMSNorm(dim)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x, cache, pos, bias):
        rows = self.qkv(self.norm1(x)).view(-1, self.hd)
        q, kv = rows.split((self.kv_heads * self.group, 2 * self.kv_heads))
        cache.index_copy_(1, pos, kv.unsqueeze(1))
        keys, values = cache.split(self.kv_heads)
        score = torch.baddbmm(bias, q.view(self.kv_heads, self.group, self.hd), keys.transpose(1, 2),
                              alpha=self.hd ** -0.5)
        y = torch.bmm(score.softmax(-1), values)
        x = x + self.proj(y.view(1, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Decoder(nn.Module):
    def __init__(self, vocab, dim, depth, heads, kv_heads, hidden, limit):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.place = nn.Embedding(limit, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, kv_heads, hidden) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        dtype = self.embed.weight.dtype
        ahead = torch.arange(limit)[None, :] > torch.arange(limit)[:, None]
        self.register_buffer("reach", torch.zeros(limit, limit, dtype=dtype).masked_fill(ahead, float("-inf")))
        self.register_buffer("cache", torch.zeros(depth, 2 * kv_heads, limit, dim // heads, dtype=dtype))

    def forward(self, token, pos):
        bias = self.reach.index_select(0, pos).unsqueeze(0)
        x = self.embed(token) + self.place(pos)
        for layer, cache in zip(self.layers, self.cache):
            x = layer(x, cache, pos, bias)
        return self.head(self.norm(x)).float()


class Session:
    def __init__(self, device):
        self.device = device
        if device == "cuda":
            shape = dict(vocab=32000, dim=8192, depth=14, heads=64, kv_heads=8, hidden=32768, limit=1024)
        else:
            shape = dict(vocab=100, dim=32, depth=2, heads=4, kv_heads=2, hidden=64, limit=32)
        self.limit, self.first = shape["limit"], shape["limit"] // 4
        torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
        with torch.device(device):
            self.model = Decoder(**shape).eval()
        torch.set_default_dtype(torch.float32)
        self.pieces = [f"<{i}>" for i in range(shape["vocab"])]
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self.pos = torch.full((1,), self.first, dtype=torch.long, device=device)
        self.length = self.first
        self.text = []
        self.graph = None
        if device == "cuda":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.advance()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.advance()
        self.pos.fill_(self.first)

    def advance(self):
        logits = self.model(self.token, self.pos)
        probs = logits.div_(0.7).softmax(-1)
        self.token.copy_(probs.div_(torch.empty_like(probs).exponential_(1)).argmax(-1))
        self.pos.add_(1)

    def step(self, i):
        if self.length >= self.limit - 1:
            self.length = self.first
            self.pos.fill_(self.first)
            self.text.clear()
        if self.graph is None:
            self.advance()
        else:
            self.graph.replay()
        self.length += 1
        self.text.append(self.pieces[self.token.item()])


def main():
    args = parse_args(["healthy"], 1600)
    torch.manual_seed(0)
    with torch.inference_mode():
        run_loop(args, Session(args.device).step, warmup=10)


if __name__ == "__main__":
    main()
