"""Embedding service: buckets requests by length and encodes them with a wide bidirectional encoder."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ge06"
CHOICES = ["healthy"]
DEFAULT_STEPS = 800
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


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens = nn.Embedding(cfg["vocab"], cfg["dim"])
        self.positions = nn.Embedding(512, cfg["dim"])
        self.layers = nn.ModuleList(Layer(cfg["dim"], cfg["heads"]) for _ in range(cfg["layers"]))
        self.norm = nn.LayerNorm(cfg["dim"])

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.normalize(self.norm(x).mean(1).float(), dim=-1)


class RequestQueue:
    """Chunks of documents; lengths are multiples of 16, as the chunker upstream makes them."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.rng = np.random.default_rng(11)
        self.waiting = {}
        self.pool = self.rng.integers(0, cfg["vocab"], 1 << 20, dtype=np.int64)
        self.serial = 0

    def fill(self):
        lengths = self.rng.choice(np.arange(4, 17) * 16, size=256)
        starts = self.rng.integers(0, len(self.pool) - 256, size=256)
        for length, start in zip(lengths.tolist(), starts.tolist()):
            self.waiting.setdefault(length, []).append((self.serial, start))
            self.serial += 1

    def take(self):
        while True:
            for length in sorted(self.waiting, key=lambda n: -n * len(self.waiting[n])):
                need = self.cfg["budget"] // length
                if len(self.waiting[length]) >= need:
                    taken = self.waiting[length][:need]
                    del self.waiting[length][:need]
                    return length, taken
                break
            self.fill()

    def rows(self, length, taken):
        starts = np.fromiter((start for _, start in taken), dtype=np.int64)
        return self.pool[starts[:, None] + np.arange(length)]


class Service:
    def __init__(self, cfg, device):
        self.cfg, self.device = cfg, device
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        with torch.device(device):
            self.model = Encoder(cfg).to(dtype).eval()
        self.queue = RequestQueue(cfg)
        self.pending = None
        self.delivered, self.checksum = 0, 0.0

    def submit(self):
        length, taken = self.queue.take()
        ids = torch.from_numpy(self.queue.rows(length, taken))
        cuda = self.device.type == "cuda"
        if cuda:
            ids = ids.pin_memory()
        vectors = self.model(ids.to(self.device, non_blocking=True))
        if not cuda:
            return taken, vectors, None
        host = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)
        host.copy_(vectors, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        return taken, host, done

    def deliver(self, taken, host, done):
        if done is not None:
            done.synchronize()
        answers = {serial: row for (serial, _), row in zip(taken, host.numpy())}
        self.delivered += len(answers)
        self.checksum += float(host[0, 0])

    @torch.inference_mode()
    def step(self):
        current = self.submit()
        if self.pending is not None:
            self.deliver(*self.pending)
        self.pending = current


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        cfg = dict(vocab=30000, dim=2560, heads=20, layers=8, budget=16384)
    else:
        cfg = dict(vocab=300, dim=64, heads=4, layers=2, budget=512)
    run_loop(args, device, Service(cfg, device).step)


if __name__ == "__main__":
    main()
