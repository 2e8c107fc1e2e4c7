"""Language-model training on documents that are packed into rows in Python while training runs."""
import argparse
import json
import statistics
import time
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gn06"
CHOICES = ["healthy"]
DEFAULT_STEPS = 160
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


class Corpus:
    def __init__(self, vocab, mean, seed=0):
        self.rng = random.Random(seed)
        self.vocab = vocab
        self.docs = [self.rng.choices(range(2, vocab), k=self.rng.randrange(mean // 4, mean * 2)) for _ in range(400)]

    def stream(self):
        while True:
            doc = self.rng.choice(self.docs)
            for token in doc:
                yield token
            yield 1


class Packer:
    """Cuts the token stream into rows, one token at a time."""

    def __init__(self, corpus, rows, length):
        self.tokens = corpus.stream()
        self.rows, self.length = rows, length

    def next(self):
        out = []
        for _ in range(self.rows):
            row = []
            for token in self.tokens:
                row.append(token)
                if len(row) == self.length + 1:
                    break
            out.append(row)
        return torch.tensor(out)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(a.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, vocab, dim, heads, layers, length):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.zeros(length, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids, goal):
        x = self.tok(ids) + self.pos
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), goal.flatten())


class History:
    """Reads each loss one step late."""

    def __init__(self):
        self.last = None
        self.values = []

    def add(self, loss):
        if self.last is not None:
            self.values.append(self.last.item())
        self.last = loss.detach()


class Trainer:
    def __init__(self, args, device):
        big = device.type == "cuda"
        vocab, dim, heads, layers, rows, length = (8192, 4096, 32, 6, 8, 2048) if big else (512, 64, 4, 2, 2, 64)
        self.device = device
        self.packer = Packer(Corpus(vocab, 600), rows, length)
        with torch.device(device):
            torch.set_default_dtype(torch.bfloat16 if big else torch.float32)
            self.model = Model(vocab, dim, heads, layers, length)
            torch.set_default_dtype(torch.float32)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda n: min(1.0, (n + 1) / 50))
        self.history = History()
        self.batch = self.packer.next()

    def step(self):
        batch = self.batch.to(self.device)
        loss = self.model(batch[:, :-1], batch[:, 1:])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.sched.step()
        self.batch = self.packer.next()
        self.history.add(loss)


def build(args, device):
    return Trainer(args, device).step


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, build(args, device))


if __name__ == "__main__":
    main()
