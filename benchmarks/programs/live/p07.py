"""Ranking of shop offers for requests; a second thread exports latency figures while it runs."""

import argparse
import threading
import time

import numpy as np
import torch
from torch import nn


class Latencies:
    """The last million latencies, with their percentiles for the dashboard."""

    def __init__(self, size, variant):
        rng = np.random.default_rng(5)
        self.values = rng.lognormal(2.0, 0.6, size)
        self.cursor = 0
        self.lock = threading.Lock()
        self.variant = variant

    def observe(self, value):
        with self.lock:
            self.values[self.cursor] = value
            self.cursor = (self.cursor + 1) % len(self.values)

    def summary(self):
        wanted = [50, 90, 99, 99.9]
        if self.variant == "slow":
            with self.lock:
                return np.percentile(self.values, wanted)
        with self.lock:
            values = self.values.copy()
        return np.percentile(values, wanted)


class Exporter(threading.Thread):
    def __init__(self, latencies, every):
        super().__init__(daemon=True)
        self.latencies, self.every = latencies, every
        self.done = threading.Event()
        self.lines = 0

    def run(self):
        while not self.done.wait(self.every):
            p50, p90, p99, p999 = self.latencies.summary()
            self.lines += f"p50={p50:.2f} p90={p90:.2f} p99={p99:.2f} p999={p999:.2f}".count("=")


class Ranker(nn.Module):
    def __init__(self, offers, width):
        super().__init__()
        self.offer = nn.Embedding(offers, width)
        self.user = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width))
        self.score = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, user, candidates):
        o = self.offer(candidates)
        u = self.user(user).expand(len(o), -1)
        return self.score(torch.cat([u, o], dim=1)).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--steps", type=int, default=300)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    latencies = Latencies(1_000_000, args.variant)
    exporter = Exporter(latencies, every=0.02)
    model = Ranker(20000, 64).to(args.device).eval()
    gen = torch.Generator().manual_seed(2)
    exporter.start()

    times, shown = [], 0
    with torch.inference_mode():
        for step in range(args.steps):
            start = time.perf_counter()
            user = torch.randn(1, 32, generator=gen).to(args.device)
            candidates = torch.randint(0, 20000, (2000,), generator=gen).to(args.device)
            best = model(user, candidates).topk(20).indices
            shown += int(candidates[best[0]]) % 2
            latencies.observe(1000 * (time.perf_counter() - start))
            times.append(time.perf_counter() - start)
            if step % 100 == 0:
                print(f"request {step} shown {shown}", flush=True)
    exporter.done.set()
    exporter.join()

    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
