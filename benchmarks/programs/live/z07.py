"""Restoration service for scanned pages: a stream of crops at native resolution through a residual U-Net."""
import argparse
import json
import queue
import statistics
import threading
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "z07"


@dataclass
class ServiceConfig:
    base: int = 48
    levels: int = 3
    batch: int = 4
    lo: int = 832
    hi: int = 1024
    grain: int = 8
    bucket: int = 96
    queue_depth: int = 4
    tune_kernels: bool = True

    @classmethod
    def for_device(cls, device):
        if device == "cpu":
            return cls(base=8, levels=2, batch=1, lo=32, hi=64, grain=8, bucket=16)
        return cls()


class ScanStream:
    """Stand-in for the decoder: uint8 pages of the size in which the scanner delivered them."""

    def __init__(self, cfg, seed=11):
        self.cfg = cfg
        self.rng = np.random.default_rng(seed)
        self.canvas = self.rng.integers(0, 256, (cfg.batch, 3, cfg.hi, cfg.hi), dtype=np.uint8)

    def __iter__(self):
        c = self.cfg
        sizes = np.arange(c.lo, c.hi + 1, c.grain)
        while True:
            h, w = self.rng.choice(sizes, 2)
            yield np.ascontiguousarray(self.canvas[:, :, :h, :w])


def native_collate(pages, cfg):
    return torch.from_numpy(pages)


def bucket_collate(pages, cfg):
    h, w = pages.shape[-2:]
    up = lambda n: -(-(n - cfg.lo) // cfg.bucket) * cfg.bucket + cfg.lo
    return F.pad(torch.from_numpy(pages), (0, up(w) - w, 0, up(h) - h))


COLLATE = {"slow": native_collate, "fixed": bucket_collate}


class Prefetcher:
    def __init__(self, stream, cfg, collate, pin):
        self.q = queue.Queue(cfg.queue_depth)
        self.args = (stream, cfg, collate, pin)
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self):
        stream, cfg, collate, pin = self.args
        for pages in stream:
            size = pages.shape[-2:]
            batch = collate(pages, cfg)
            self.q.put((batch.pin_memory() if pin else batch, size))

    def get(self):
        return self.q.get()


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Conv2d(c, c, 3, padding=1)
        self.b = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return x + self.b(F.relu(self.a(x), inplace=True))


class RestoreNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        ch = [cfg.base * 2**k for k in range(cfg.levels)]
        self.stem = nn.Conv2d(3, ch[0], 3, padding=1)
        self.enc = nn.ModuleList(ResBlock(c) for c in ch)
        self.down = nn.ModuleList(nn.Conv2d(a, b, 2, stride=2) for a, b in zip(ch, ch[1:]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(ch, ch[1:]))
        self.dec = nn.ModuleList(ResBlock(c) for c in ch[:-1])
        self.tail = nn.Conv2d(ch[0], 3, 3, padding=1)

    def forward(self, x):
        y = self.stem(x)
        skips = []
        for k, blk in enumerate(self.enc):
            y = blk(y)
            if k < len(self.down):
                skips.append(y)
                y = self.down[k](y)
        for k in reversed(range(len(self.up))):
            y = self.dec[k](self.up[k](y) + skips[k])
        return x + self.tail(y)


def configure_backends(cfg):
    torch.backends.cudnn.benchmark = cfg.tune_kernels
    torch.backends.cudnn.allow_tf32 = True


class RestorationService:
    def __init__(self, args):
        self.cfg = cfg = ServiceConfig.for_device(args.device)
        self.cuda = args.device == "cuda"
        self.dev = torch.device(args.device)
        configure_backends(cfg)
        torch.manual_seed(0)
        self.net = RestoreNet(cfg).to(self.dev, torch.bfloat16, memory_format=torch.channels_last).eval()
        self.source = Prefetcher(ScanStream(cfg), cfg, COLLATE[args.variant], self.cuda)
        self.out = torch.empty(cfg.batch, 3, cfg.hi, cfg.hi, dtype=torch.uint8, pin_memory=self.cuda)
        self.contrast = torch.zeros((), device=self.dev)
        self.prime()

    @torch.inference_mode()
    def restore(self, pages):
        x = pages.to(memory_format=torch.channels_last, dtype=torch.bfloat16).div_(255)
        y = self.net(x)
        return y.mul_(255).clamp_(0, 255).to(torch.uint8)

    def prime(self):
        """The sizes of the bucket grid are run once before traffic is let in."""
        c = self.cfg
        grid = range(c.lo, c.hi + 1, c.bucket)
        for h in grid:
            for w in grid:
                self.restore(torch.zeros(c.batch, 3, h, w, dtype=torch.uint8, device=self.dev))

    def step(self, i):
        pages, (h, w) = self.source.get()
        result = self.restore(pages.to(self.dev, non_blocking=True))[:, :, :h, :w]
        self.contrast.lerp_(result[:, :, ::8, ::8].float().std(), 0.1)


def parse_args(variants):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def drive(args, step, steps, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps, it = [], warmup
    start = last = time.perf_counter()
    for _ in range(steps):
        step(it)
        it += 1
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": PROGRAM, "variant": args.variant, "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 3),
        "step_ms_median": round(1e3 * statistics.median(laps), 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if cuda:
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for k in range(6):
                step(it)
                it += 1
                if cuda and k == 5:
                    sync()
                prof.step()


def main():
    args = parse_args(["slow", "fixed"])
    service = RestorationService(args)
    default = {"slow": 45, "fixed": 700}[args.variant]
    drive(args, service.step, args.steps or (default if args.device == "cuda" else 6), warmup=6)


if __name__ == "__main__":
    main()
