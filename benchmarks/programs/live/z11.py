"""Offline scoring of ranking requests with a DLRM: one fused table, multi-hot features, log replay from the host."""
import argparse
import json
import statistics
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "z11"


@dataclass
class RankConfig:
    tables: int = 26
    rows: int = 760_000
    dim: int = 256
    dense: int = 13
    batch: int = 32768
    mean_hot: int = 48
    replay: int = 4

    @classmethod
    def for_device(cls, device):
        if device == "cpu":
            return cls(tables=4, rows=100, dim=16, dense=4, batch=32, mean_hot=3, replay=2)
        return cls()


@dataclass
class Request:
    ids: torch.Tensor
    offsets: torch.Tensor
    dense: torch.Tensor

    def map(self, fn):
        return Request(fn(self.ids), fn(self.offsets), fn(self.dense))


class LogReplay:
    """Requests as the feature store wrote them: ragged id lists, table after table for every example."""

    def __init__(self, cfg, pin):
        rng = np.random.default_rng(4)
        self.requests = [self._make(cfg, rng) for _ in range(cfg.replay)]
        if pin:
            self.requests = [r.map(torch.Tensor.pin_memory) for r in self.requests]

    @staticmethod
    def _make(cfg, rng):
        bags = cfg.batch * cfg.tables
        lengths = rng.integers(cfg.mean_hot // 2, cfg.mean_hot + cfg.mean_hot // 2 + 1, bags)
        offsets = np.zeros(bags + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        ids = rng.integers(0, cfg.rows, int(offsets[-1]), dtype=np.int32)
        shift = np.tile(np.arange(cfg.tables, dtype=np.int32) * cfg.rows, cfg.batch)
        ids += np.repeat(shift, lengths)
        dense = rng.standard_normal((cfg.batch, cfg.dense), dtype=np.float32)
        return Request(torch.from_numpy(ids), torch.from_numpy(offsets), torch.from_numpy(dense))

    def __getitem__(self, i):
        return self.requests[i % len(self.requests)]


class Mover:
    """Double-buffered upload on a side stream."""

    def __init__(self, log, device):
        self.log, self.dev, self.i = log, device, 0
        self.consumed = deque()
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None
        self.ready = self._upload()

    def _upload(self):
        r = self.log[self.i]
        self.i += 1
        if self.stream is None:
            return r
        with torch.cuda.stream(self.stream):
            return r.map(lambda t: t.to(self.dev, non_blocking=True))

    def next(self):
        r = self.ready
        if self.stream is not None:
            main = torch.cuda.current_stream()
            main.wait_stream(self.stream)
            r.map(lambda t: t.record_stream(main))
            mark = torch.cuda.Event()
            mark.record(main)
            self.consumed.append(mark)
            if len(self.consumed) > 3:
                self.consumed.popleft().synchronize()
        self.ready = self._upload()
        return r


def tower(sizes):
    mods = []
    for a, b in zip(sizes, sizes[1:]):
        mods += [nn.Linear(a, b), nn.ReLU(inplace=True)]
    return nn.Sequential(*mods[:-1])


class DotInteraction(nn.Module):
    def __init__(self, features):
        super().__init__()
        r, c = torch.tril_indices(features, features, -1)
        self.register_buffer("flat", r * features + c, persistent=False)

    def forward(self, z):
        return torch.bmm(z, z.transpose(1, 2)).flatten(1).index_select(1, self.flat)


class Ranker(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.table = nn.Parameter(torch.empty(cfg.tables * cfg.rows, cfg.dim).uniform_(-0.05, 0.05), requires_grad=False)
        self.bottom = tower([cfg.dense, 512, 256, cfg.dim])
        self.cross = DotInteraction(cfg.tables + 1)
        pairs = (cfg.tables + 1) * cfg.tables // 2
        self.top = tower([cfg.dim + pairs, 1024, 512, 1])

    def forward(self, req):
        d = self.bottom(req.dense.to(self.table.dtype))
        bags = F.embedding_bag(req.ids, self.table, req.offsets, mode="sum", include_last_offset=True)
        z = torch.cat([d.unsqueeze(1), bags.view(-1, self.cfg.tables, self.cfg.dim)], dim=1)
        return torch.sigmoid(self.top(torch.cat([d, self.cross(z)], dim=1)).float()).squeeze(1)


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
    args = parse_args(["healthy"])
    torch.manual_seed(0)
    cfg, dev = RankConfig.for_device(args.device), torch.device(args.device)
    torch.set_default_dtype(torch.bfloat16)
    with dev:
        model = Ranker(cfg).eval()
    torch.set_default_dtype(torch.float32)
    mover = Mover(LogReplay(cfg, dev.type == "cuda"), dev)
    calibration = torch.zeros(20, device=dev)

    @torch.inference_mode()
    def step(i):
        p = model(mover.next())
        calibration.add_(torch.histc(p, bins=20, min=0.0, max=1.0))

    drive(args, step, args.steps or (900 if args.device == "cuda" else 6), warmup=6)


if __name__ == "__main__":
    main()
