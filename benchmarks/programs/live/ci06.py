"""Document embedding service: requests sorted into length buckets, one bfloat16 encoder pass a bucket."""
import argparse, json, random, statistics, threading, time
from collections import OrderedDict
import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, HEADS, VOCAB = 512, 8, 20000


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.n2(x))))


class Encoder(nn.Module):
    """One block, applied several times (shared weights)."""

    def __init__(self, depth=4):
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCAB, DIM), nn.Embedding(512, DIM)
        self.block, self.depth = Block(), depth

    def forward(self, ids):
        x = self.embed(ids) + self.position(torch.arange(ids.shape[1]))
        for _ in range(self.depth):
            x = self.block(x)
        return F.normalize(x.mean(1).float(), dim=-1)


class Cache:
    def __init__(self, size):
        self.size, self.items, self.lock = size, OrderedDict(), threading.Lock()

    def put(self, key, value):
        with self.lock:
            self.items[key] = value
            if len(self.items) > self.size:
                self.items.popitem(last=False)


def requests(seed):
    """Per call: documents of four lengths, eight of each."""
    rng = random.Random(seed)
    serial = 0
    while True:
        docs = []
        for length in (64, 96, 128, 192):
            for _ in range(8):
                docs.append((serial, [rng.randrange(VOCAB) for _ in range(length)]))
                serial += 1
        rng.shuffle(docs)
        yield docs


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="healthy", choices=["healthy"])
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--max-seconds", type=float, default=30)
    a = p.parse_args()
    torch.manual_seed(0)
    model = Encoder().eval().to(torch.bfloat16)
    cache, source = Cache(2000), requests(1)
    ready = [next(source) for _ in range(12)]
    times, seen, start = [], 0, time.perf_counter()
    for step in range(a.steps):
        t = time.perf_counter()
        buckets = {}
        for key, ids in ready[step % len(ready)]:
            buckets.setdefault(len(ids), []).append((key, ids))
        with torch.inference_mode():
            for length in sorted(buckets):
                keys = [k for k, _ in buckets[length]]
                vectors = model(torch.tensor([i for _, i in buckets[length]]))
                for key, vector in zip(keys, vectors.tolist()):
                    cache.put(key, vector)
                seen += len(keys)
        times.append((time.perf_counter() - t) * 1e3)
        if time.perf_counter() - start > a.max_seconds:
            break
    kept = times[3:] or times
    print(json.dumps({"mean_ms": statistics.mean(kept), "median_ms": statistics.median(kept), "steps": len(times), "documents": seen}))


if __name__ == "__main__":
    main()
