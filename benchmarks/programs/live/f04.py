"""Perplexity of a causal model over a tokenised corpus."""
import json
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from blocks_f import Meter, parse, torch_sync


class Corpus(Dataset):
    """Windows over one long token array; every read waits a little, like a network disk."""

    def __init__(self, n, length, vocab, delay):
        rng = np.random.default_rng(0)
        self.tokens = rng.integers(0, vocab, size=length * 256 + 1, dtype=np.int32)
        self.n, self.length, self.delay = n, length, delay

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(self.delay)
        s = (i % 256) * self.length
        return torch.from_numpy(self.tokens[s:s + self.length + 1].astype(np.int64))


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.o = nn.Linear(d, d, bias=False)
        self.up = nn.Linear(d, 4 * d, bias=False)
        self.down = nn.Linear(4 * d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.n2(x))))


class Causal(nn.Module):
    def __init__(self, vocab, d, heads, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList([Layer(d, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.emb(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@torch.inference_mode()
def score(model, batch, device):
    batch = batch.to(device)
    logits = model(batch[:, :-1])
    nll = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    return nll.item()


def main():
    args = parse(["healthy"])
    torch.manual_seed(3)
    device = torch.device(args.device)
    vocab, d, heads, layers, bs, length = (8192, 4096, 32, 4, 8, 2048)
    workers, delay = 4, 0.002
    if args.tiny:
        vocab, d, heads, layers, bs, length, workers = 64, 32, 4, 1, 2, 16, 1
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with device:
        model = Causal(vocab, d, heads, layers).eval()
    torch.set_default_dtype(old)
    data = Corpus((args.steps + 3) * bs, length, vocab, delay)
    loader = iter(DataLoader(data, batch_size=bs, num_workers=workers))
    total = 0.0
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "scores.jsonl"), "w") as out:
        for _ in range(3):
            score(model, next(loader), device)
        meter = Meter(torch_sync(device))
        for i in meter.loop(args.steps):
            nll = score(model, next(loader), device)
            total += nll
            out.write(json.dumps({"batch": i, "nll": nll, "mean": total / (i + 1)}) + "\n")
            out.flush()
        print(f"perplexity {math.exp(min(20.0, total / len(meter.times))):.2f}")
    meter.report()


if __name__ == "__main__":
    main()
