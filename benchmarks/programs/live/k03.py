"""Pretraining a small language model on long documents with rotary positions."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
WIDTH, LAYERS, HEADS, LENGTH, BATCH, WORDS = (1024, 4, 16, 4096, 4, 8192) if GPU else (64, 2, 4, 64, 2, 128)
WARM = 4
PRECISION = torch.bfloat16


class Rotary:
    """Cosine and sine tables of all positions, made once for the model."""

    def __init__(self, size, dtype):
        rates = 10_000.0 ** (-torch.arange(0, size, 2, device=args.device) / size)
        angle = torch.outer(torch.arange(LENGTH, device=args.device), rates).repeat(1, 2)
        self.cos, self.sin = angle.cos().to(dtype), angle.sin().to(dtype)

    def turn(self, x):
        left, right = x.chunk(2, -1)
        return x * self.cos + torch.cat((-right, left), -1) * self.sin


class Attention(nn.Module):
    def __init__(self, rotary):
        super().__init__()
        self.rotary = rotary
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        rows, length, _ = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k = self.rotary.turn(q), self.rotary.turn(k)
        mixed = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH).to(x.dtype))


class Block(nn.Module):
    def __init__(self, rotary):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend = Attention(rotary)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attend(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Writer(nn.Module):
    def __init__(self, rotary):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block(rotary) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Corpus:
    """Documents whose words repeat with a lag, kept on the device."""

    def __init__(self):
        self.ids = torch.randint(WORDS, (64, LENGTH + 1), device=args.device)
        self.ids[:, 32:] = torch.where(
            torch.rand(64, LENGTH - 31, device=args.device) < 0.5, self.ids[:, :-32], self.ids[:, 32:]
        )

    def batch(self):
        rows = self.ids[torch.randint(64, (BATCH,), device=args.device)]
        return rows[:, :-1], rows[:, 1:]


def sync():
    if GPU:
        torch.cuda.synchronize()


def main():
    torch.manual_seed(0)
    rotary = Rotary(WIDTH // HEADS, torch.float32 if args.variant == "slow" else PRECISION)
    model = Writer(rotary).to(args.device, PRECISION)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=GPU)
    corpus = Corpus()
    start = begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        seen, expected = corpus.batch()
        loss = F.cross_entropy(model(seen).flatten(0, 1), expected.flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
