"""Passage encoder behind a lock: several request threads, one model, results cached by text."""
import argparse
import hashlib
import json
import statistics
import threading
import time
from collections import OrderedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

LENGTH = 96


class HashTokenizer:
    """Words to ids by hashing, in plain Python."""

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary

    def __call__(self, texts):
        rows = []
        for text in texts:
            ids = [int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "big") % self.vocabulary
                   for word in text.lower().split()]
            rows.append((ids + [0] * LENGTH)[:LENGTH])
        return torch.tensor(rows)


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.first, self.second = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, dim)
        x = x + self.out(mixed)
        return x + self.down(F.relu(self.up(self.second(x))))


class Encoder(nn.Module):
    def __init__(self, vocabulary=30_000, dim=384, layers=4, heads=6):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return F.normalize(self.norm(x).mean(dim=1), dim=-1)


class Cache:
    def __init__(self, size: int):
        self.size, self.rows = size, OrderedDict()
        self.lock = threading.Lock()

    def get(self, key):
        with self.lock:
            if key in self.rows:
                self.rows.move_to_end(key)
                return self.rows[key]
        return None

    def put(self, key, row):
        with self.lock:
            self.rows[key] = row
            while len(self.rows) > self.size:
                self.rows.popitem(last=False)


class EncoderService:
    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model.eval(), tokenizer
        self.cache = Cache(512)
        self.lock = threading.Lock()
        self.times, self.hits = [], 0
        self.last = time.perf_counter()

    def encode(self, texts):
        keys = [hashlib.sha1(text.encode()).hexdigest() for text in texts]
        rows = [self.cache.get(key) for key in keys]
        missing = [n for n, row in enumerate(rows) if row is None]
        self.hits += len(texts) - len(missing)
        if missing:
            ids = self.tokenizer([texts[n] for n in missing])
            with self.lock:
                with torch.inference_mode():
                    vectors = self.model(ids)
                now = time.perf_counter()
                self.times.append(1e3 * (now - self.last))
                self.last = now
            for n, vector in zip(missing, vectors):
                rows[n] = vector.tolist()
                self.cache.put(keys[n], rows[n])
        return json.dumps({"vectors": [[round(value, 5) for value in row] for row in rows]})


def passages(seed: int):
    rng = np.random.default_rng(seed)
    words = [f"w{n}" for n in range(5000)]
    while True:
        picks = rng.integers(0, len(words), (8, LENGTH))
        yield [" ".join(words[p] for p in row) for row in picks]


def requester(service: EncoderService, seed: int, until: float, limit: int, sizes: list):
    for texts in passages(seed):
        sizes.append(len(service.encode(texts)))
        time.sleep(0.002)
        if time.perf_counter() > until or len(service.times) >= limit:
            return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--max-seconds", type=float, default=22)
    parser.add_argument("--threads", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    service = EncoderService(Encoder(), HashTokenizer(30_000))
    sizes: list[int] = []
    until = time.perf_counter() + args.max_seconds
    threads = [threading.Thread(target=requester, args=(service, n, until, args.steps, sizes)) for n in range(args.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times = service.times[5:]
    print(json.dumps({"case": "cb06", "variant": args.variant, "steps": len(times), "bytes": sum(sizes), "hits": service.hits,
                      "mean_ms": statistics.fmean(times), "median_ms": statistics.median(times)}))


if __name__ == "__main__":
    main()
