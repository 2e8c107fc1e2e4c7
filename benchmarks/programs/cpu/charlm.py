"""Character language model; batches are cut from a text in the background."""

import collections
import statistics
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class Prefetcher(threading.Thread):
    def __init__(self, data, batch, length, depth=4):
        super().__init__(daemon=True)
        self.data, self.batch, self.length, self.depth = data, batch, length, depth
        self.buffer = collections.deque()
        self.lock = threading.Lock()
        self.done = False
        self.start()

    def make(self):
        i = np.random.randint(0, len(self.data) - self.length - 1, self.batch)
        rows = np.stack([self.data[j : j + self.length + 1] for j in i]).astype(np.int64)
        rows = torch.from_numpy(rows)
        return rows[:, :-1], rows[:, 1:]

    def run(self):
        item = self.make()
        while not self.done:
            with self.lock:
                if len(self.buffer) < self.depth:
                    self.buffer.append(item)
                    item = None
            if item is None:
                item = self.make()

    def next(self):
        while True:
            with self.lock:
                if self.buffer:
                    return self.buffer.popleft()


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class CharLM(nn.Module):
    def __init__(self, vocab=96, dim=128, layers=4, heads=4, length=64):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.head = nn.Linear(dim, vocab)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main(steps=160):
    torch.manual_seed(0)
    data = np.random.default_rng(0).integers(0, 96, 1_000_000).astype(np.uint8)
    batches = Prefetcher(data, batch=8, length=64)
    model = CharLM()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    times = []
    t0 = last = time.perf_counter()
    for step in range(steps):
        x, y = batches.next()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    batches.done = True
    print(
        f"median step {statistics.median(times) * 1e3:.2f} ms  total {time.perf_counter() - t0:.2f} s"
    )


if __name__ == "__main__":
    main()
