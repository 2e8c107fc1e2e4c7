"""Passage scoring service: clients enqueue queries with candidate passages, one scorer drains them in batches."""

import argparse
import json
import queue
import random
import threading
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, BUCKETS = 8000, (64, 96, 128, 160)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Scorer(nn.Module):
    def __init__(self, dim=384, depth=6, heads=6):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(max(BUCKETS), dim)
        self.layers = nn.Sequential(*(Layer(dim, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 1)

    def forward(self, ids):
        x = self.layers(self.tok(ids) + self.pos(torch.arange(ids.shape[1])))
        return self.head(self.norm(x[:, 0])).squeeze(1)


@dataclass
class Job:
    ident: int
    tokens: list
    done: threading.Event = field(default_factory=threading.Event)
    scores: list = None


class Stats:
    def __init__(self):
        self.lock, self.jobs, self.rows, self.waits = threading.Lock(), 0, 0, []

    def add(self, rows, wait):
        with self.lock:
            self.jobs += 1
            self.rows += rows
            self.waits.append(wait)


class Client(threading.Thread):
    """Closed-loop caller: sends a job, waits for the answer, keeps the best passage, sends the next one."""

    def __init__(self, inbox, stats, stop, seed):
        super().__init__(daemon=True, name=f"client-{seed}")
        self.inbox, self.stats, self.stop, self.rng = inbox, stats, stop, random.Random(seed)
        self.words = [f"term{i}" for i in range(5000)]

    def tokens(self):
        n = self.rng.choice(BUCKETS) - self.rng.randrange(0, 6)
        text = " ".join(self.rng.choices(self.words, k=n))
        return [1 + (int(word[4:]) * 7919) % (VOCAB - 1) for word in text.split()]

    def run(self):
        number = 0
        while not self.stop.is_set():
            job = Job(number, [self.tokens() for _ in range(4)])
            sent = time.perf_counter()
            self.inbox.put(job)
            while not job.done.wait(0.5):
                if self.stop.is_set():
                    return
            self.stats.add(len(job.tokens), time.perf_counter() - sent)
            number += 1


class Batcher:
    def __init__(self, inbox, rows=16, linger=0.002):
        self.inbox, self.rows, self.linger = inbox, rows, linger

    def collect(self):
        jobs, count = [self.inbox.get(timeout=10)], 0
        count += len(jobs[0].tokens)
        limit = time.perf_counter() + self.linger
        while count < self.rows:
            try:
                job = self.inbox.get(timeout=max(0.0, limit - time.perf_counter()))
            except queue.Empty:
                break
            jobs.append(job)
            count += len(job.tokens)
        return jobs


def grouped(jobs):
    """Rows of all jobs, by the bucket that their length falls into."""
    out = {}
    for j, job in enumerate(jobs):
        for r, tokens in enumerate(job.tokens):
            width = next(b for b in BUCKETS if len(tokens) <= b)
            out.setdefault(width, []).append((j, r, tokens))
    return out


@torch.inference_mode()
def score(model, jobs):
    for job in jobs:
        job.scores = [0.0] * len(job.tokens)
    for width, rows in grouped(jobs).items():
        ids = np.zeros((len(rows), width), np.int64)
        for n, (_, _, tokens) in enumerate(rows):
            ids[n, : len(tokens)] = tokens
        for (j, r, _), value in zip(rows, model(torch.from_numpy(ids)).float().tolist()):
            jobs[j].scores[r] = value
    for job in jobs:
        job.done.set()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="healthy", choices=["slow", "fixed", "healthy"])
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--max-seconds", type=float, default=60)
    ap.add_argument("--clients", type=int, default=10)
    args = ap.parse_args()
    torch.manual_seed(0)
    model = Scorer().eval().to(torch.bfloat16)
    inbox, stats, stop = queue.Queue(), Stats(), threading.Event()
    callers = [Client(inbox, stats, stop, seed) for seed in range(args.clients)]
    for caller in callers:
        caller.start()
    batcher, times, began = Batcher(inbox), [], time.perf_counter()
    for step in range(args.steps):
        t0 = time.perf_counter()
        jobs = batcher.collect()
        score(model, jobs)
        if step >= 4:
            times.append(1e3 * (time.perf_counter() - t0))
        if step % 50 == 0:
            print(f"batch {step} jobs {len(jobs)} queued {inbox.qsize()}", flush=True)
        if time.perf_counter() - began > args.max_seconds:
            break
    stop.set()
    print(
        json.dumps(
            {
                "variant": args.variant,
                "steps": len(times),
                "jobs": stats.jobs,
                "wait_ms": round(1e3 * float(np.mean(stats.waits)), 2),
                "mean_ms": round(float(np.mean(times)), 3),
                "median_ms": round(float(np.median(times)), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
