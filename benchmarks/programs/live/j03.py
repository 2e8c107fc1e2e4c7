"""Perplexity of long documents under a decoder, one pair of documents at a time."""

import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["healthy", "slow", "fixed"], default="healthy")
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
DIM, HEADS, DEPTH, VOCAB = (4096, 32, 5, 8192) if GPU else (64, 4, 2, 128)
LENGTH, PAIR, SLICE = (16384, 2, 8192) if GPU else (64, 2, 32)
DTYPE = torch.bfloat16 if GPU else torch.float32


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.query, self.key, self.value, self.out = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(DIM, 4 * DIM, bias=False), nn.Linear(4 * DIM, DIM, bias=False)

    def split(self, x):
        return x.unflatten(-1, (HEADS, DIM // HEADS)).transpose(1, 2)

    def forward(self, x):
        n = self.before(x)
        y = F.scaled_dot_product_attention(
            self.split(self.query(n)), self.split(self.key(n)), self.split(self.value(n)), is_causal=True
        )
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(self.between(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, DIM)
        self.places = nn.Embedding(LENGTH, DIM)
        self.layers = nn.ModuleList([Layer() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(DIM)

    def forward(self, ids):
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Report:
    """Running perplexities, kept on the host and averaged anew after each pair."""

    def __init__(self):
        self.values = []

    def add(self, document, nats):
        self.values.append({"document": document, "nats": nats})
        return math.exp(min(20.0, np.mean([v["nats"] for v in self.values])))


def read_pair(rng):
    rows = [rng.integers(0, VOCAB, LENGTH).tolist() for _ in range(PAIR)]
    return torch.tensor(rows, dtype=torch.long)


@torch.no_grad()
def score(model, ids):
    ids = ids.to(args.device)
    hidden = model(ids)
    sums = []
    for row in range(PAIR):
        total = 0.0
        for start in range(0, LENGTH - 1, SLICE):
            stop = min(start + SLICE, LENGTH - 1)
            logits = hidden[row, start:stop] @ model.words.weight.T
            total += F.cross_entropy(logits.float(), ids[row, start + 1 : stop + 1], reduction="sum").item()
        sums.append(total / (LENGTH - 1))
    return sums


def main():
    torch.manual_seed(0)
    torch.set_default_dtype(DTYPE)
    with torch.device(args.device):
        model = Decoder().eval()
    for p in model.parameters():
        if p.dim() == 2:
            nn.init.normal_(p, std=0.02)
    report, rng = Report(), np.random.default_rng(0)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        ids = read_pair(rng)
        for row, nats in enumerate(score(model, ids)):
            perplexity = report.add(f"{step}-{row}", nats)
        if GPU:
            torch.cuda.synchronize()
            used = torch.cuda.max_memory_allocated() / 2**30
        else:
            used = 0.0
        print(f"step {step} perplexity {perplexity:.2f} memory {used:.1f} GiB", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={math.log(perplexity):.5f}")


main()
