"""Distilling letters of a market into a compact next-word model."""

import argparse
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
WARM = 4
TOKENS = 50257 if GPU else 257
ROOM = TOKENS if args.variant == "slow" else -(-TOKENS // 128) * 128


@dataclass(frozen=True)
class Config:
    vocabulary: int = ROOM
    width: int = 1024 if GPU else 32
    layers: int = 3 if GPU else 2
    heads: int = 16 if GPU else 4
    length: int = 1024 if GPU else 16
    batch: int = 16 if GPU else 4
    rate: float = 3e-4


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.qkv(self.first(x)).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class NextWord(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.length, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Letters:
    """Token streams in which frequent tokens come first, as in real vocabularies."""

    def __init__(self, config):
        self.config = config
        uniform = torch.rand(2_000_000 if GPU else 5_000)
        self.ids = ((TOKENS**uniform).long() - 1).clamp_(0, TOKENS - 1).to(args.device)

    def batch(self):
        length = self.config.length
        begin = torch.randint(len(self.ids) - length - 1, (self.config.batch, 1), device=args.device)
        span = self.ids[begin + torch.arange(length + 1, device=args.device)]
        return span[:, :-1], span[:, 1:]


class Trainer:
    def __init__(self, config):
        self.model = NextWord(config).to(args.device, torch.bfloat16)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=config.rate, fused=GPU)
        self.letters = Letters(config)

    def step(self, index):
        seen, expected = self.letters.batch()
        guess = self.model(seen)
        loss = F.cross_entropy(guess.flatten(0, 1), expected.flatten())
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        if index % 20 == 0:
            print(f"step {index} loss {loss.item():.4f}", flush=True)


def sync():
    if GPU:
        torch.cuda.synchronize()


def main():
    torch.manual_seed(0)
    trainer = Trainer(Config())
    start = begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        trainer.step(step)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
