"""Byte-level language model on synthetic text; everything in one process."""
import argparse
import gc
import json
import math
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 256


class Windows(Dataset):
    """Cuts windows out of one long array of bytes at random offsets, one at a time."""

    def __init__(self, length: int, context: int, count: int, seed: int = 0):
        rng = np.random.default_rng(seed)
        words = [bytes(rng.integers(97, 123, rng.integers(2, 9)).astype(np.uint8)) for _ in range(400)]
        picks = rng.zipf(1.4, length // 4) % len(words)
        self.text = np.frombuffer(b" ".join(words[p] for p in picks), dtype=np.uint8)
        self.context, self.count = context, count
        self.rng = np.random.default_rng(seed + 1)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        start = self.rng.integers(0, len(self.text) - self.context - 1)
        piece = torch.from_numpy(self.text[start : start + self.context + 1].astype(np.int64))
        return piece[:-1], piece[1:]


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, dim)))
        return x + self.dropout(self.down(F.relu(self.up(self.between(x)))))


class ByteModel(nn.Module):
    def __init__(self, dim: int, layers: int, heads: int, context: int, dropout: float):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, dim)
        self.place = nn.Parameter(0.02 * torch.randn(context, dim))
        self.blocks = nn.ModuleList(Block(dim, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)

    def forward(self, tokens, targets):
        x = self.embed(tokens) + self.place[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Meter:
    def __init__(self, horizon=0.98):
        self.value, self.horizon, self.history = None, horizon, []

    def update(self, value: float) -> float:
        self.value = value if self.value is None else self.horizon * self.value + (1 - self.horizon) * value
        self.history.append(value)
        return self.value


def gradient_norm(model) -> float:
    total = 0.0
    for parameter in model.parameters():
        if parameter.grad is not None:
            total += parameter.grad.norm().item() ** 2
    return math.sqrt(total)


def save(model, step: int, folder: Path):
    torch.save({"step": step, "model": model.state_dict()}, folder / "last.pt")


def train(args, folder: Path) -> list[float]:
    data = Windows(400_000, args.context, args.batch * args.steps)
    loader = DataLoader(data, batch_size=args.batch, num_workers=0)
    model = ByteModel(args.dim, args.layers, 4, args.context, 0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loss_meter, norm_meter = Meter(), Meter()
    times = []
    begin = last = time.perf_counter()
    for step, (tokens, targets) in enumerate(loader):
        loss = model(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        norm = norm_meter.update(gradient_norm(model))
        if math.isfinite(norm):
            optimizer.step()
        smooth = loss_meter.update(loss.item())
        print(f"step {step} loss {loss.item():.3f} smooth {smooth:.3f} norm {norm:.2f}", flush=True)
        if step % 40 == 39:
            save(model, step, folder)
            gc.collect()
        now = time.perf_counter()
        times.append(1e3 * (now - last))
        last = now
        if now - begin > args.max_seconds:
            break
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--max-seconds", type=float, default=22)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--batch", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        times = train(args, Path(folder))[5:]
    print(json.dumps({"case": "cb05", "variant": args.variant, "steps": len(times),
                      "mean_ms": statistics.fmean(times), "median_ms": statistics.median(times)}))


if __name__ == "__main__":
    main()
