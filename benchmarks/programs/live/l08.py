#!/usr/bin/env python
"""A batch translation service: reader, model and writer threads."""
import argparse
import json
import os
import queue
import tempfile
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
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Tagger(nn.Module):
    def __init__(self, vocab, d, h, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.Sequential(*[Block(d, h) for _ in range(layers)])
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        return self.head(self.blocks(self.emb(ids))).argmax(-1)


def reader(jobs, args, vocab, pin):
    rng = np.random.default_rng(0)
    for k in range(args.requests):
        words = [f"w{j}" for j in rng.integers(0, vocab, args.batch * args.length)]
        ids = np.array([int(w[1:]) for w in words]).reshape(args.batch, args.length)
        ids = torch.from_numpy(ids)
        jobs.put((k, ids.pin_memory() if pin else ids))
    jobs.put(None)


def writer(results, path):
    with open(path, "w") as f:
        while True:
            got = results.get()
            if got is None:
                return
            k, ids, event = got
            if event:
                event.synchronize()
            f.write(json.dumps({"id": k, "tokens": ids[:, :64].tolist()}) + "\n")
            f.flush()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--requests", type=int, default=4 if TINY else 100000)
    p.add_argument("--batch", type=int, default=2 if TINY else 16)
    p.add_argument("--length", type=int, default=8 if TINY else 1024)
    p.add_argument("--max-seconds", type=float, default=15)
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    vocab, d, h, layers = (64, 32, 2, 1) if TINY else (8192, 4096, 32, 8)
    with torch.device(device):
        model = Tagger(vocab, d, h, layers).to(torch.bfloat16 if device == "cuda" else torch.float32).eval()
    jobs, results = queue.Queue(4), queue.Queue(4)
    path = os.path.join(tempfile.mkdtemp(), "out.jsonl")
    threading.Thread(target=reader, args=(jobs, args, vocab, device == "cuda"), daemon=True).start()
    w = threading.Thread(target=writer, args=(results, path), daemon=True)
    w.start()
    start, n = time.time(), 0
    with torch.inference_mode():
        while time.time() - start < args.max_seconds:
            job = jobs.get()
            if job is None:
                break
            k, ids = job
            out, event = model(ids.to(device, non_blocking=True)), None
            if device == "cuda":
                host = torch.empty(out.shape, dtype=out.dtype, pin_memory=True)
                out = host.copy_(out, non_blocking=True)
                event = torch.cuda.Event()
                event.record()
            results.put((k, out, event))
            n += 1
            if n % 50 == 0:
                print(f"{n} requests, {n * args.batch * args.length / (time.time() - start):.0f} tok/s", flush=True)
    results.put(None)
    w.join(10)
    print(f"done: {n} requests in {time.time() - start:.1f} s, {path}")


if __name__ == "__main__":
    main()
