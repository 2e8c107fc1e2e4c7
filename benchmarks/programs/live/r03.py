"""Batched text generation with a static KV cache, CUDA graphs and n-gram repeat blocking."""
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


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.norm2 = nn.RMSNorm(dim)
        self.up = nn.Linear(dim, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x, cache, pos, cos, sin, bias):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        cache[0].index_copy_(2, pos, k)
        cache[1].index_copy_(2, pos, v)
        if bias is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=bias)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        gate, up = self.up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, vocab, dim, depth, heads, hidden, batch, limit):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, hidden) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        hd = dim // heads
        angle = torch.outer(torch.arange(limit).float(), 10000.0 ** (-torch.arange(0, hd, 2).float() / hd))
        dtype = self.embed.weight.dtype
        self.register_buffer("cos", angle.cos().to(dtype))
        self.register_buffer("sin", angle.sin().to(dtype))
        reach = torch.arange(limit)[None, :] <= torch.arange(limit)[:, None]
        self.register_buffer("reach", torch.zeros(limit, limit, dtype=dtype).masked_fill(~reach, float("-inf")))
        self.register_buffer("cache", torch.zeros(depth, 2, batch, heads, limit, hd, dtype=dtype))

    def forward(self, tokens, pos):
        bias = None
        if tokens.shape[1] == 1:
            bias = self.reach.index_select(0, pos)[None, None]
        cos, sin = self.cos.index_select(0, pos), self.sin.index_select(0, pos)
        x = self.embed(tokens)
        for block, cache in zip(self.blocks, self.cache):
            x = block(x, cache, pos, cos, sin, bias)
        return self.head(self.norm(x[:, -1])).float()


class GraphRunner:
    def __init__(self, model, batch, device):
        self.model = model
        self.tokens = torch.zeros(batch, 1, dtype=torch.long, device=device)
        self.pos = torch.zeros(1, dtype=torch.long, device=device)
        self.graph = None
        if device == "cuda":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.model(self.tokens, self.pos)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.logits = self.model(self.tokens, self.pos)

    def __call__(self):
        if self.graph is None:
            return self.model(self.tokens, self.pos)
        self.graph.replay()
        return self.logits


def seen_ngrams(tokens, n):
    table = {}
    for gram in zip(*(tokens[i:] for i in range(n))):
        table.setdefault(gram[:-1], []).append(gram[-1])
    return table


class SequenceGuard:
    def __init__(self, sequences, n):
        self.sequences = [list(s) for s in sequences]
        self.n = n

    def blocked(self):
        rows, cols = [], []
        for row, tokens in enumerate(self.sequences):
            found = seen_ngrams(tokens, self.n).get(tuple(tokens[1 - self.n:]), ())
            rows.extend([row] * len(found))
            cols.extend(found)
        return rows, cols

    def extend(self, new):
        for tokens, token in zip(self.sequences, new):
            tokens.append(token)


class RollingGuard:
    def __init__(self, sequences, n):
        self.n = n
        self.tails = [tuple(s[1 - n:]) for s in sequences]
        self.tables = [seen_ngrams(s, n) for s in sequences]

    def blocked(self):
        rows, cols = [], []
        for row, (tail, table) in enumerate(zip(self.tails, self.tables)):
            found = table.get(tail, ())
            rows.extend([row] * len(found))
            cols.extend(found)
        return rows, cols

    def extend(self, new):
        for row, token in enumerate(new):
            tail = self.tails[row]
            self.tables[row].setdefault(tail, []).append(token)
            self.tails[row] = tail[1:] + (token,)


class Generator:
    def __init__(self, device, guard_type):
        self.device, self.guard_type = device, guard_type
        if device == "cuda":
            shape = dict(vocab=32000, dim=2048, depth=16, heads=16, hidden=8192, batch=48, limit=1280)
            self.prompt_len = 640
        else:
            shape = dict(vocab=200, dim=32, depth=2, heads=2, hidden=64, batch=3, limit=64)
            self.prompt_len = 24
        self.batch, self.limit, self.vocab = shape["batch"], shape["limit"], shape["vocab"]
        torch.set_default_dtype(torch.bfloat16 if device == "cuda" else torch.float32)
        with torch.device(device):
            self.model = Decoder(**shape).eval()
        torch.set_default_dtype(torch.float32)
        self.runner = GraphRunner(self.model, self.batch, device)
        self.start()

    def start(self):
        prompts = torch.randint(0, self.vocab, (self.batch, self.prompt_len))
        self.guard = self.guard_type(prompts.tolist(), 3)
        pos = torch.arange(self.prompt_len, device=self.device)
        logits = self.model(prompts.to(self.device), pos)
        self.length = self.prompt_len
        self.accept(logits)

    def accept(self, logits):
        rows, cols = self.guard.blocked()
        if rows:
            where = torch.tensor([rows, cols]).to(self.device, non_blocking=True)
            logits.index_put_((where[0], where[1]), torch.tensor(float("-inf"), device=self.device))
        top, ids = logits.div_(0.8).topk(50, dim=-1)
        choice = torch.multinomial(top.softmax(-1), 1)
        token = ids.gather(1, choice)
        self.runner.tokens.copy_(token)
        self.guard.extend(token.flatten().tolist())

    def step(self, i):
        if self.length >= self.limit:
            self.start()
        self.runner.pos.fill_(self.length)
        self.accept(self.runner())
        self.length += 1


def main():
    args = parse_args(["slow", "fixed"], 450)
    torch.manual_seed(0)
    guard_type = {"slow": SequenceGuard, "fixed": RollingGuard}[args.variant]
    with torch.inference_mode():
        run_loop(args, Generator(args.device, guard_type).step, warmup=8)


if __name__ == "__main__":
    main()
