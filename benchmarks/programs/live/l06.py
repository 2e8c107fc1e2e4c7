#!/usr/bin/env python
"""An inference server: clients put requests, a batcher groups them and runs the model."""
import argparse
import os
import queue
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = os.environ.get("TINY") == "1"


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Ranker(nn.Module):
    def __init__(self, vocab, d, h, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.Sequential(*[Block(d, h) for _ in range(layers)])
        self.out = nn.Linear(d, 1)

    def forward(self, ids):
        return self.out(self.blocks(self.emb(ids)).mean(1))[:, 0]


class Request:
    def __init__(self, ids):
        self.ids, self.ready, self.score, self.at = ids, threading.Event(), None, time.perf_counter()


class Server:
    def __init__(self, model, device, max_batch, max_wait):
        self.model, self.device, self.max_batch, self.max_wait = model, device, max_batch, max_wait
        self.inbox, self.stopped, self.batches = queue.Queue(), threading.Event(), 0
        self.thread = threading.Thread(target=self.loop, daemon=True)
        self.thread.start()

    def submit(self, ids):
        r = Request(ids)
        self.inbox.put(r)
        return r

    def collect(self):
        try:
            batch = [self.inbox.get(timeout=0.5)]
        except queue.Empty:
            return []
        until = time.perf_counter() + self.max_wait
        while len(batch) < self.max_batch:
            left = until - time.perf_counter()
            if left <= 0:
                break
            try:
                batch.append(self.inbox.get(timeout=left))
            except queue.Empty:
                break
        return batch

    @torch.inference_mode()
    def loop(self):
        while not self.stopped.is_set():
            batch = self.collect()
            if not batch:
                continue
            ids = torch.from_numpy(np.stack([r.ids for r in batch])).to(self.device)
            scores = self.model(ids).float().cpu().tolist()
            self.batches += 1
            for r, s in zip(batch, scores):
                r.score = s
                r.ready.set()


def client(server, rng, vocab, length, latencies, stop):
    while not stop.is_set():
        r = server.submit(rng.integers(0, vocab, length))
        if r.ready.wait(10):
            latencies.append(time.perf_counter() - r.at)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clients", type=int, default=12)
    p.add_argument("--max-batch", type=int, default=32)
    p.add_argument("--max-wait-ms", type=float, default=30)
    p.add_argument("--length", type=int, default=8 if TINY else 512)
    p.add_argument("--seconds", type=float, default=1 if TINY else 15)
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    vocab, d, h, layers = (64, 32, 2, 1) if TINY else (30000, 1536, 12, 12)
    with torch.device(device):
        model = Ranker(vocab, d, h, layers).to(torch.bfloat16 if device == "cuda" else torch.float32).eval()
    server = Server(model, device, args.max_batch, args.max_wait_ms / 1e3)
    latencies, stop = [], threading.Event()
    clients = [threading.Thread(target=client, args=(server, np.random.default_rng(k), vocab, args.length, latencies, stop), daemon=True) for k in range(args.clients)]
    for c in clients:
        c.start()
    t0 = time.time()
    while time.time() - t0 < args.seconds:
        time.sleep(min(3, args.seconds))
        done = sorted(latencies[-2000:])
        if done:
            print(f"{time.time() - t0:5.1f} s  {len(latencies) / (time.time() - t0):.0f} req/s  p50 {1e3 * done[len(done) // 2]:.1f} ms  batches {server.batches}", flush=True)
    stop.set()
    server.stopped.set()
    for c in clients + [server.thread]:
        c.join(3)


if __name__ == "__main__":
    main()
