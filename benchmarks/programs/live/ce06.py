"""Embedding service: client threads, a batching thread, a transformer encoder."""
import argparse
import json
import queue
import random
import statistics
import threading
import time
from concurrent.futures import Future
from functools import lru_cache

import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS = ["".join(random.Random(i).choices("abcdefghijklmnopqrstuvwxyz", k=3 + i % 6)) for i in range(1500)]


@lru_cache(maxsize=8192)
def pieces(word):
    return tuple((hash_piece(word[i : i + 3])) for i in range(0, len(word), 3))


def hash_piece(text):
    value = 7
    for ch in text:
        value = (value * 131 + ord(ch)) % 7919
    return value + 2


def encode(text, limit=160):
    ids = [1]
    for word in text.split():
        ids.extend(pieces(word))
        if len(ids) >= limit:
            break
    return ids[:limit]


class Encoder(nn.Module):
    def __init__(self, vocab=8000, width=320, heads=5, layers=5, limit=160):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(limit, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, mask):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        x = self.norm(self.body(x, src_key_padding_mask=~mask))
        weights = mask[:, :, None].to(x.dtype)
        return F.normalize((x * weights).sum(1) / weights.sum(1), dim=-1)


class Service:
    def __init__(self, model, max_batch=16, linger=0.002):
        self.model, self.max_batch, self.linger = model, max_batch, linger
        self.inbox, self.closing = queue.Queue(), threading.Event()
        self.lock = threading.Lock()
        self.times, self.padding = [], []
        self.thread = threading.Thread(target=self.serve, name="batcher", daemon=True)

    def submit(self, text):
        done = Future()
        self.inbox.put((encode(text), done))
        return done

    def gather(self):
        try:
            found = [self.inbox.get(timeout=0.05)]
        except queue.Empty:
            return []
        deadline = time.perf_counter() + self.linger
        while len(found) < 4 * self.max_batch:
            left = deadline - time.perf_counter()
            try:
                found.append(self.inbox.get(timeout=left) if left > 0 else self.inbox.get_nowait())
            except queue.Empty:
                break
        return sorted(found, key=lambda item: len(item[0]))

    def run_batch(self, items):
        longest = max(len(ids) for ids, _ in items)
        ids = torch.tensor([row + [0] * (longest - len(row)) for row, _ in items])
        mask = ids != 0
        vectors = self.model(ids, mask)
        for (_, done), vector in zip(items, vectors.tolist()):
            done.set_result(vector)
        with self.lock:
            self.padding.append(1 - mask.sum().item() / mask.numel())

    @torch.inference_mode()
    def serve(self):
        while not self.closing.is_set():
            found = self.gather()
            for start in range(0, len(found), self.max_batch):
                t0 = time.perf_counter()
                self.run_batch(found[start : start + self.max_batch])
                self.times.append((time.perf_counter() - t0) * 1e3)


def client(service, seed, until, stop):
    rng = random.Random(seed)
    while not stop.is_set():
        pending = [service.submit(" ".join(rng.choices(WORDS, k=rng.randint(20, 70)))) for _ in range(16)]
        for done in pending:
            vector = done.result(timeout=300)
            assert abs(sum(x * x for x in vector) - 1) < 1e-2
        if len(service.times) >= until or stop.is_set():
            stop.set()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["healthy"], default="healthy")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=23)
    ap.add_argument("--clients", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    service = Service(Encoder().eval())
    service.thread.start()
    stop = threading.Event()
    clients = [threading.Thread(target=client, args=(service, i, args.steps, stop)) for i in range(args.clients)]
    for c in clients:
        c.start()
    stop.wait(args.max_seconds)
    stop.set()
    for c in clients:
        c.join()
    service.closing.set()
    service.thread.join()
    kept = service.times[2:] or service.times
    print(json.dumps({"case": "ce06", "variant": args.variant, "steps": len(service.times),
                      "padding": round(statistics.fmean(service.padding), 3),
                      "mean_step_ms": round(statistics.fmean(kept), 2),
                      "median_step_ms": round(statistics.median(kept), 2)}))


if __name__ == "__main__":
    main()
