#!/usr/bin/env python
"""Pretrain a decoder with accumulation, evaluation and a checkpoint at the end."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TINY = os.environ.get("TINY") == "1"


class Tokens(Dataset):
    def __init__(self, count, length, vocab, seed):
        self.data = np.random.default_rng(seed).integers(0, vocab, count).astype(np.uint16)
        self.length = length

    def __len__(self):
        return (len(self.data) - 1) // self.length

    def __getitem__(self, i):
        s = self.data[i * self.length : i * self.length + self.length + 1].astype(np.int64)
        return torch.from_numpy(s[:-1]), torch.from_numpy(s[1:])


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Decoder(nn.Module):
    def __init__(self, vocab, d, h, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList([Block(d, h) for _ in range(layers)])
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.apply(lambda m: nn.init.normal_(m.weight, 0, 0.02) if isinstance(m, (nn.Linear, nn.Embedding)) else None)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        return self.head(self.ln(x))


@torch.no_grad()
def evaluate(model, loader, device, batches=1):
    model.eval()
    losses = []
    for k, (x, y) in enumerate(loader):
        if k == batches:
            break
        losses.append(F.cross_entropy(model(x.to(device)).flatten(0, 1), y.to(device).flatten()))
    model.train()
    return torch.stack(losses).mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--micro-batch", type=int, default=2 if TINY else 16)
    p.add_argument("--accum", type=int, default=2)
    p.add_argument("--seq", type=int, default=8 if TINY else 1024)
    p.add_argument("--steps", type=int, default=4 if TINY else 400)
    p.add_argument("--eval-every", type=int, default=2 if TINY else 25)
    p.add_argument("--max-seconds", type=float, default=15)
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(0)
    vocab, d, h, layers = (64, 32, 2, 1) if TINY else (8192, 4096, 32, 4)
    with torch.device(device):
        model = Decoder(vocab, d, h, layers).to(dtype)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    train = DataLoader(Tokens(5000 if TINY else 20_000_000, args.seq, vocab, 0), batch_size=args.micro_batch, shuffle=True, drop_last=True, num_workers=2, pin_memory=device == "cuda", persistent_workers=True)
    val = DataLoader(Tokens(500 if TINY else 400_000, args.seq, vocab, 1), batch_size=args.micro_batch, num_workers=0, pin_memory=device == "cuda")
    batches, step, start = iter(train), 0, time.time()
    while step < args.steps and time.time() - start < args.max_seconds:
        for _ in range(args.accum):
            try:
                x, y = next(batches)
            except StopIteration:
                batches = iter(train)
                x, y = next(batches)
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / args.accum
            loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        step += 1
        print(f"step {step} loss {loss.item() * args.accum:.3f} grad {norm.item():.3f}", flush=True)
        if step % args.eval_every == 0:
            print(f"step {step} val {evaluate(model, val, device):.3f}", flush=True)
    print(f"done: {step} steps in {time.time() - start:.1f} s")
    torch.save(model.head.state_dict(), os.path.join(tempfile.mkdtemp(), "head.pt"))


if __name__ == "__main__":
    main()
