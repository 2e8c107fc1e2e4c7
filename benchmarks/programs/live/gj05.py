"""Ad-ranking service: request threads, a batcher, and a thread that hands the scores back."""
import argparse
import json
import statistics
import time
import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gj05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 700
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


class Ranker(nn.Module):
    def __init__(self, rows, dim, fields, dense, width, depth):
        super().__init__()
        self.table = nn.Embedding(rows, dim)
        self.dense = nn.Linear(dense, width)
        self.inp = nn.Linear(fields * dim, width)
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, ids, dense):
        x0 = self.inp(self.table(ids).flatten(-2)) + self.dense(dense)
        x = x0
        for c in self.cross:
            x = x0 * c(x) + x
            x = F.layer_norm(x, x.shape[-1:])
        return self.head(x).sigmoid()


class Request:
    __slots__ = ("ids", "dense", "future")

    def __init__(self, ids, dense):
        self.ids, self.dense, self.future = ids, dense, Future()


class Service:
    def __init__(self, model, device, variant, max_batch, window):
        self.model, self.device, self.variant = model, device, variant
        self.max_batch, self.window = max_batch, window
        self.incoming, self.finished = queue.Queue(), queue.Queue()
        self.running = True
        self.served = 0
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self.batcher, self.responder)]
        for t in self.threads:
            t.start()

    def gather(self):
        try:
            batch = [self.incoming.get(timeout=0.2)]
        except queue.Empty:
            return []
        deadline = time.perf_counter() + self.window
        while len(batch) < self.max_batch:
            left = deadline - time.perf_counter()
            try:
                batch.append(self.incoming.get(timeout=left) if left > 0 else self.incoming.get_nowait())
            except queue.Empty:
                break
        return batch

    @torch.inference_mode()
    def batcher(self):
        while self.running:
            batch = self.gather()
            if not batch:
                continue
            ids = torch.from_numpy(np.stack([r.ids for r in batch])).to(self.device)
            dense = torch.from_numpy(np.stack([r.dense for r in batch])).to(self.device, self.model.head.weight.dtype)
            scores = self.model(ids, dense).float().cpu().numpy()
            self.finished.put((batch, scores))

    def responder(self):
        while self.running:
            try:
                if self.variant == "fixed":
                    batch, scores = self.finished.get(timeout=0.2)
                else:
                    batch, scores = self.finished.get_nowait()
            except queue.Empty:
                continue
            for r, s in zip(batch, scores):
                r.future.set_result(s)
            self.served += len(batch)

    def rank(self, ids, dense, top):
        r = Request(ids, dense)
        self.incoming.put(r)
        s = r.future.result()
        value = s[:, 0] * (0.7 * s[:, 1] + 0.3 * s[:, 2])
        return np.argsort(-value)[:top]

    def close(self):
        self.running = False
        for t in self.threads:
            t.join()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    rows, dim, fields, dense, width, depth = (2_000_000, 64, 24, 48, 2048, 5) if big else (1000, 8, 4, 8, 32, 2)
    clients, candidates = (24, 512) if big else (4, 16)
    dtype = torch.bfloat16 if big else torch.float32
    with torch.device(device):
        model = Ranker(rows, dim, fields, dense, width, depth).to(dtype).eval()
    service = Service(model, device, args.variant, clients, 0.004)
    pool = ThreadPoolExecutor(clients)
    rngs = [np.random.default_rng(i) for i in range(clients)]

    def user(i):
        rng = rngs[i]
        ids = rng.integers(0, rows, (candidates, fields))
        feats = rng.standard_normal((candidates, dense), dtype=np.float32)
        return service.rank(ids, feats, 20)

    def step():
        """One wave: every client asks once."""
        answers = [pool.submit(user, i) for i in range(clients)]
        for a in answers:
            a.result()

    run_loop(args, device, step)
    service.close()
    pool.shutdown()


if __name__ == "__main__":
    main()
