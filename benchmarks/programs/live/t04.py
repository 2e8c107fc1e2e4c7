"""Grounded captioning pre-training on an annotation file held in memory: text and quantised boxes in one token stream."""
import argparse
import gc
import json
import random
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "t04"
STEPS = 85
WARMUP = 4


def load_annotations(count, vocab):
    draw = random.Random(7)
    records = []
    for i in range(count):
        words = [draw.randrange(vocab) for _ in range(24)]
        objects = [{"label": [draw.randrange(vocab)], "box": [draw.randrange(1000) for _ in range(4)]} for _ in range(2)]
        records.append({"id": i, "caption": words, "objects": objects})
    return records


class TokenStream:
    def __init__(self, records, vocab, length, batch, device):
        self.records, self.vocab, self.length, self.batch, self.device = records, vocab, length, batch, device
        self.draw = random.Random(11)

    def encode(self, record):
        ids = list(record["caption"])
        for thing in record["objects"]:
            ids += thing["label"]
            ids += [self.vocab + c for c in thing["box"]]
        return ids

    def next(self):
        rows = []
        for _ in range(self.batch):
            ids = []
            while len(ids) <= self.length:
                ids += self.encode(self.records[self.draw.randrange(len(self.records))])
            rows.append(ids[:self.length + 1])
        rows = torch.tensor(rows)
        if self.device.type == "cuda":
            rows = rows.pin_memory().to(self.device, non_blocking=True)
        return rows[:, :-1], rows[:, 1:]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm_a(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm_b(x)), approximate="tanh"))


class Captioner(nn.Module):
    def __init__(self, vocab, width, heads, depth, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.embed(ids) + self.place)))


class Housekeeper:
    """Automatic collection is off (it struck in the middle of a step); garbage is taken away between the steps."""

    def __init__(self):
        gc.disable()
        gc.collect()

    def after_step(self):
        gc.collect()


class SettledHousekeeper(Housekeeper):
    def __init__(self):
        super().__init__()
        gc.freeze()


VARIANTS = {"slow": Housekeeper, "fixed": SettledHousekeeper}


def build(device, keeper_type):
    gpu = device.type == "cuda"
    vocab, width, heads, depth, length, batch, count = (16000, 1024, 16, 14, 512, 32, 80_000) if gpu else (60, 32, 2, 2, 32, 4, 3000)
    stream = TokenStream(load_annotations(count, vocab), vocab, length, batch, device)
    model = Captioner(vocab + 1024, width, heads, depth, length).to(device)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    keeper = keeper_type()

    def step():
        ids, target = stream.next()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(ids).flatten(0, 1), target.flatten())
        loss.backward()
        optim.step()
        optim.zero_grad()
        keeper.after_step()

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
