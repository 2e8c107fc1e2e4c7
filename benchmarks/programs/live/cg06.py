"""Reranking service: a client thread sends one query every so often, the main thread scores its passages."""
import argparse
import json
import queue
import statistics
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn

D, HEADS, VOCAB, T, PASSAGES = 384, 6, 4096, 64, 6


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (h.view(b, t, HEADS, -1).transpose(1, 2) for h in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.relu(self.up(self.ln2(x))))


class Reranker(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, D), nn.Embedding(T, D)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.score = nn.Linear(D, 1)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight
        for layer in self.layers:
            x = layer(x)
        return self.score(x[:, 0]).squeeze(-1)


def client(inbox, stop, interval):
    gen = torch.Generator().manual_seed(1)
    pool = [torch.randint(0, VOCAB, (PASSAGES, T), generator=gen) for _ in range(16)]
    due, number = time.perf_counter(), 0
    while not stop.is_set():
        inbox.put((time.perf_counter(), pool[number % len(pool)]))
        number += 1
        due += interval
        time.sleep(max(0.0, due - time.perf_counter()))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["healthy"], default="healthy")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=18)
    ap.add_argument("--interval-ms", type=float, default=180)
    a = ap.parse_args()
    torch.manual_seed(0)
    model = Reranker().eval()
    inbox, stop = queue.Queue(), threading.Event()
    threading.Thread(target=client, args=(inbox, stop, a.interval_ms / 1e3), daemon=True).start()
    times, latency, best = [], [], 0
    began = last = time.perf_counter()
    with torch.inference_mode():
        for _ in range(a.steps):
            sent, ids = inbox.get()
            best += int(model(ids).argmax())
            now = time.perf_counter()
            latency.append(now - sent)
            times.append(now - last)
            last = now
            if now - began > a.max_seconds:
                break
    stop.set()
    t = times[2:] if len(times) > 4 else times
    print(json.dumps({"steps": len(times), "mean_step_ms": 1e3 * statistics.mean(t), "median_step_ms": 1e3 * statistics.median(t),
                      "median_latency_ms": 1e3 * statistics.median(latency)}))


if __name__ == "__main__":
    main()
