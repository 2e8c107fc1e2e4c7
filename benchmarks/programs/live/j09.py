"""Training a bidirectional encoder with bucketed distance biases on masked tokens."""

import argparse
import math
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
DIM, HEADS, DEPTH, VOCAB, LENGTH, BATCH = (512, 8, 4, 4000, 768, 8) if GPU else (32, 4, 2, 50, 24, 2)
BUCKETS, REACH = 32, 128


def bucket_of(offset):
    """Exact buckets for near words, logarithmic ones up to REACH, both directions."""
    half = BUCKETS // 2
    side = (offset > 0).long() * half
    far = offset.abs()
    near = half // 2
    scaled = near + (far.clamp(min=1) / near).log() / math.log(REACH / near) * (half - near)
    return side + torch.where(far < near, far, scaled.long().clamp(max=half - 1))


class DistanceBias(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(BUCKETS, HEADS))
        place = torch.arange(LENGTH)
        self.register_buffer("bucket", bucket_of(place[None, :] - place[:, None]))

    def forward(self):
        return self.table[self.bucket].permute(2, 0, 1)


class DiagonalDistanceBias(DistanceBias):
    def __init__(self):
        super().__init__()
        self.register_buffer("bucket", bucket_of(torch.arange(1 - LENGTH, LENGTH)))

    def forward(self):
        return self.table[self.bucket].T.unfold(1, LENGTH, 1).flip(1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x, bias):
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (DIM // HEADS) ** -0.5 + bias
        x = x + self.out((scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB + 1, DIM)
        self.bias = (DistanceBias if args.variant == "slow" else DiagonalDistanceBias)()
        self.layers = nn.ModuleList([Layer() for _ in range(DEPTH)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x, bias = self.words(ids), self.bias()
        for layer in self.layers:
            x = layer(x, bias)
        return self.head(self.norm(x))


def masked_batch():
    start = torch.randint(VOCAB, (BATCH, 1), device=args.device)
    ids = (start + 3 * torch.arange(LENGTH, device=args.device)) % VOCAB
    hidden = torch.rand(ids.shape, device=args.device) < 0.15
    return ids.masked_fill(hidden, VOCAB), ids, hidden


def main():
    torch.manual_seed(0)
    model = Encoder().to(args.device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=GPU)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        ids, target, hidden = masked_batch()
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=GPU):
            scores = model(ids)
        each = F.cross_entropy(scores.float().flatten(0, 1), target.flatten(), reduction="none")
        loss = (each * hidden.flatten()).sum() / hidden.sum()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


main()
