"""Training a weather emulator from a chunked, compressed archive of packed fields."""
import argparse
import atexit
import collections
import json
import random
import shutil
import statistics
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Archive:
    """Time series of int16 fields; one compressed file holds `span` consecutive times."""

    def __init__(self, root, shape, span, keep):
        self.root, self.shape, self.span, self.keep = Path(root), shape, span, keep
        self.open = collections.OrderedDict()

    def write(self, chunks, seed=0):
        rng = np.random.default_rng(seed)
        c, h, w = self.shape
        low = rng.normal(size=(c, h // 8, w // 8)) * 900
        base = np.repeat(np.repeat(low, 8, 1), 8, 2).astype(np.int16)
        noise = rng.integers(0, 32, size=(self.span, c, h // 4, w), dtype=np.int16).repeat(4, axis=2)

        def one(i):
            times = range(i * self.span, (i + 1) * self.span)
            data = np.stack([np.roll(base, t, axis=2) for t in times]) + np.roll(noise, i, axis=3)
            (self.root / f"{i:05d}").write_bytes(zlib.compress(data.astype(np.int16).tobytes(), 3))

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(one, range(chunks)))
        self.times = chunks * self.span

    def read_chunk(self, i):
        raw = zlib.decompress((self.root / f"{i:05d}").read_bytes())
        return np.frombuffer(raw, np.int16).reshape(self.span, *self.shape)

    def ensure(self, ids, pool):
        for i in ids:
            if i in self.open:
                self.open.move_to_end(i)
        missing = [i for i in ids if i not in self.open]
        self.open.update(zip(missing, pool.map(self.read_chunk, missing)))
        held = {i: self.open[i] for i in ids}
        while len(self.open) > self.keep:
            self.open.popitem(last=False)
        return held


def visiting_order(archive, rng):
    order = list(range(archive.times - 1))
    rng.shuffle(order)
    return order


def visiting_order_local(archive, rng, window=8):
    chunks = list(range(archive.times // archive.span))
    rng.shuffle(chunks)
    order = []
    for i in range(0, len(chunks), window):
        part = [c * archive.span + j for c in chunks[i:i + window] for j in range(archive.span)]
        rng.shuffle(part)
        order += [t for t in part if t < archive.times - 1]
    return order


class Feeder:
    """Prepares the next batch in the background, in one of two page-locked buffers."""

    def __init__(self, archive, order, batch, readers, device):
        self.archive, self.order, self.batch, self.device = archive, order, batch, device
        self.pool, self.lead = ThreadPoolExecutor(readers), ThreadPoolExecutor(1)
        self.cuda = device == "cuda"
        shape = (2, batch, 2, *archive.shape)
        self.buffers = torch.empty(shape, dtype=torch.int16, pin_memory=self.cuda)
        self.views = self.buffers.numpy()
        self.copied = [torch.cuda.Event() for _ in range(2)] if self.cuda else None
        self.rng, self.todo, self.turn = random.Random(0), [], 0
        self.next = self.lead.submit(self.prepare, 0)

    def prepare(self, turn):
        if len(self.todo) < self.batch:
            self.todo = self.order(self.archive, self.rng)
        times, self.todo = self.todo[:self.batch], self.todo[self.batch:]
        if self.cuda:
            self.copied[turn].synchronize()
        span, out = self.archive.span, self.views[turn]
        held = self.archive.ensure(sorted({s // span for t in times for s in (t, t + 1)}), self.pool)

        def place(row):
            for j in (0, 1):
                t = times[row] + j
                np.copyto(out[row, j], held[t // span][t % span])

        list(self.pool.map(place, range(self.batch)))

    def get(self):
        turn = self.turn
        self.next.result()
        data = self.buffers[turn].to(self.device, non_blocking=True)
        if self.cuda:
            self.copied[turn].record()
        self.turn = 1 - turn
        self.next = self.lead.submit(self.prepare, self.turn)
        return data

    def close(self):
        self.next.result()
        self.lead.shutdown()
        self.pool.shutdown()


class Emulator(nn.Module):
    def __init__(self, channels, size, patch, d, depth, heads):
        super().__init__()
        self.embed = nn.Conv2d(channels, d, patch, stride=patch)
        self.pos = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, d))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(d, heads, 4 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
            for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, channels * patch * patch))
        self.patch = patch

    def forward(self, x):
        h = self.embed(x)
        n, d, gh, gw = h.shape
        h = h.flatten(2).mT + self.pos
        for block in self.blocks:
            h = block(h)
        y = self.head(h).view(n, gh, gw, -1, self.patch, self.patch)
        return x + y.permute(0, 3, 1, 4, 2, 5).reshape(x.shape)


class Run:
    def __init__(self, args):
        torch.manual_seed(0)
        cuda = args.device == "cuda"
        if cuda:
            shape, span, chunks, batch, readers, d, depth = (20, 128, 128), 8, 128, 32, 8, 768, 6
        else:
            shape, span, chunks, batch, readers, d, depth = (4, 32, 32), 8, 24, 4, 2, 32, 1
        self.folder = tempfile.mkdtemp(prefix="fields-")
        try:
            archive = Archive(self.folder, shape, span, keep=24)
            archive.write(chunks)
            order = {"slow": visiting_order, "fixed": visiting_order_local}[args.variant]
            self.feeder = Feeder(archive, order, batch, readers, args.device)
            self.net = Emulator(shape[0], shape[1], 4, d, depth, d // 64 or 1).to(args.device)
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)
        self.device = args.device

    def step(self):
        pair = self.feeder.get().float().div_(900.0)
        with torch.autocast(self.device, dtype=torch.bfloat16):
            pred = self.net(pair[:, 0])
        F.mse_loss(pred.float(), pair[:, 1]).backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)

    def close(self):
        self.feeder.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--max-seconds", type=float, default=1e9)
    p.add_argument("--trace")
    args = p.parse_args()
    run = Run(args)
    atexit.register(shutil.rmtree, run.folder, ignore_errors=True)
    sync = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)

    for _ in range(8):
        run.step()
    sync()
    times, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        run.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if now - start > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - start) / len(times)
    print(json.dumps({"program": "y09", "variant": args.variant, "steps": len(times),
                      "step_ms_mean": round(1e3 * mean, 3),
                      "step_ms_median": round(1e3 * statistics.median(times), 3)}), flush=True)

    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if args.device == "cuda" else [])
        with profile(activities=acts, schedule=schedule(wait=0, warmup=2, active=4), record_shapes=True,
                     with_stack=True, with_modules=True,
                     on_trace_ready=lambda prof: prof.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                run.step()
                prof.step()
    run.close()


if __name__ == "__main__":
    main()
