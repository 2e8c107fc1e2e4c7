"""Classification of irregularly sampled sensor series of very different lengths; transformer encoder, padded batches."""
import argparse
import json
import math
import resource
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class SensorSeries(Dataset):
    """All series live in one flat array; an item is a slice of it with a little jitter."""

    def __init__(self, count, channels, low, high, classes, length):
        rng = np.random.default_rng(0)
        sizes = rng.integers(low, high, count)
        self.start = np.concatenate(([0], np.cumsum(sizes)))
        self.flat = rng.standard_normal((int(self.start[-1]), channels), dtype=np.float32)
        self.gaps = rng.random(int(self.start[-1]), dtype=np.float32)
        self.label = rng.integers(0, classes, count)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        i = i % (len(self.start) - 1)
        a, b = self.start[i], self.start[i + 1]
        gain = 1.0 + 0.05 * float(torch.randn(()))
        values = torch.from_numpy(self.flat[a:b] * np.float32(gain))
        times = torch.from_numpy(np.cumsum(self.gaps[a:b], dtype=np.float32))
        return values, times, torch.tensor(self.label[i])


def collate_series(items):
    """Series keep their own length; the padding is left to the training step."""
    values, times, labels = zip(*items)
    return list(values), list(times), list(labels)


def pad_series(values, times, labels):
    size = torch.tensor([len(t) for t in times])
    return pad_sequence(values, batch_first=True), pad_sequence(times, batch_first=True), size, torch.stack(labels)


def collate_padded(items):
    return pad_series(*zip(*items))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, bias):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.proj(att.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class SeriesEncoder(nn.Module):
    def __init__(self, channels, dim, depth, heads, classes):
        super().__init__()
        self.front = nn.Linear(channels, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, classes)
        self.register_buffer("freq", torch.exp(-torch.arange(dim // 2) * (6.0 / (dim // 2))))

    def forward(self, values, times, size):
        seen = torch.arange(values.shape[1], device=values.device)[None] < size[:, None]
        angle = times[..., None] * self.freq
        x = self.front(values) + torch.cat((angle.sin(), angle.cos()), -1)
        for block in self.blocks:
            x = block(x, seen[:, None, None, :])
        w = seen[..., None].float()
        return self.head((x * w).sum(1) / w.sum(1))


def build(args, device):
    tiny = device.type == "cpu"
    torch.manual_seed(0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    channels, dim, depth, heads, classes, batch, workers = (
        (3, 32, 2, 2, 4, 4, 2) if tiny else (12, 384, 6, 6, 40, 64, 8))
    data = SensorSeries(50 if tiny else 4000, channels, *((5, 20) if tiny else (300, 800)), classes, batch * 4000)
    model = SeriesEncoder(channels, dim, depth, heads, classes).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    # -- variant
    collate, finish = {"slow": (collate_series, pad_series), "fixed": (collate_padded, lambda *b: b)}[args.variant]
    # --
    loader = DataLoader(data, batch, shuffle=True, drop_last=True, num_workers=workers, collate_fn=collate,
                        pin_memory=not tiny, persistent_workers=True, prefetch_factor=2)
    stream = iter(loader)

    def step():
        values, times, size, label = (t.to(device, non_blocking=True) for t in finish(*next(stream)))
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(values, times, size), label)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss

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
    args = parse_args(["slow", "fixed"], {"slow": 160, "fixed": 400})
    device = torch.device(args.device)
    measure("s07", args, build(args, device), device)
