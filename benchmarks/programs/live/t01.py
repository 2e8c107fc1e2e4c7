"""Weight-tied masked sequence model: one block applied many times, with an orthogonal channel rotation between iterations."""
import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

NAME = "t01"
STEPS = 130
WARMUP = 4


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class TiedBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_a = nn.LayerNorm(width)
        self.norm_b = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        # keeps the state's energy through the iterations
        self.rotate = orthogonal(nn.Linear(width, width, bias=False), "weight", orthogonal_map="matrix_exp",
                                 use_trivialization=False)

    def forward(self, x):
        x = self.rotate(x)
        x = x + self.attention(self.norm_a(x))
        return x + self.down(F.gelu(self.up(self.norm_b(x)), approximate="tanh"))


class TiedEncoder(nn.Module):
    def __init__(self, vocab, width, heads, depth, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.block = TiedBlock(width, heads)
        self.depth = depth
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids) + self.place
        for _ in range(self.depth):
            x = self.block(x)
        return self.head(self.norm(x))


VARIANTS = {"slow": contextlib.nullcontext, "fixed": parametrize.cached}


def build(device, weights):
    gpu = device.type == "cuda"
    torch.set_float32_matmul_precision("high")
    vocab, width, heads, depth, length, batch = (16384, 1024, 16, 16, 512, 24) if gpu else (64, 32, 2, 3, 16, 2)
    model = TiedEncoder(vocab, width, heads, depth, length).to(device)
    optim = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.05, fused=True)
    data = torch.randint(1, vocab, (64, batch, length), device=device)
    hide = torch.rand(64, batch, length, device=device) < 0.15
    state = {"at": 0}

    def step():
        i = state["at"] % 64
        state["at"] += 1
        target = data[i].masked_fill(~hide[i], -100)
        with torch.autocast(device.type, dtype=torch.bfloat16), weights():
            logits = model(data[i].masked_fill(hide[i], 0))
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optim.zero_grad()
        loss.backward()
        optim.step()

    return step


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step, device, steps, limit):
    marks = []
    settle(device)
    begin = time.perf_counter()
    last = begin
    for _ in range(steps):
        step()
        now = time.perf_counter()
        marks.append((now - last) * 1e3)
        last = now
        if limit and now - begin > limit:
            break
    settle(device)
    total = (time.perf_counter() - begin) * 1e3
    return len(marks), total / len(marks), statistics.median(marks)


def record(step, device, path):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
                                record_shapes=True, with_stack=True, with_modules=True,
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--variant", choices=sorted(VARIANTS), default=sorted(VARIANTS)[-1])
    ap.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    ap.add_argument("--steps", type=int, default=STEPS)
    ap.add_argument("--max-seconds", type=float, default=None)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    step = build(device, VARIANTS[args.variant])
    for _ in range(WARMUP):
        step()
    count, mean, median = timed(step, device, args.steps, args.max_seconds)
    print(json.dumps({"program": NAME, "variant": args.variant, "steps": count,
                      "step_ms_mean": round(mean, 3), "step_ms_median": round(median, 3)}), flush=True)
    if args.trace:
        record(step, device, args.trace)


if __name__ == "__main__":
    main()
