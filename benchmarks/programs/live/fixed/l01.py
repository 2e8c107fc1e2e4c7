#!/usr/bin/env python
"""Train a small GPT on a token file (or on synthetic tokens)."""
import argparse
import math
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
    def __init__(self, path, length, vocab):
        self.data = np.memmap(path, np.uint16, "r") if path else np.random.default_rng(0).integers(0, vocab, 20_000_000 if not TINY else 20_000).astype(np.uint16)
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
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocab, t, d, h, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(t, d)
        self.blocks = nn.ModuleList([Block(d, h) for _ in range(layers)])
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.head.weight = self.wte.weight
        self.apply(lambda m: nn.init.normal_(m.weight, 0, 0.02) if isinstance(m, (nn.Linear, nn.Embedding)) else None)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for b in self.blocks:
            x = b(x)
        return self.head(self.ln(x))


def save_checkpoint(path, model, opt, step):
    state = {"model": model.state_dict(), "optimizer": opt.state_dict(), "step": step}
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data")
    p.add_argument("--out", default=None)
    p.add_argument("--steps", type=int, default=4 if TINY else 2000)
    p.add_argument("--max-seconds", type=float, default=16)
    p.add_argument("--batch", type=int, default=2 if TINY else 24)
    p.add_argument("--seq", type=int, default=16 if TINY else 1024)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--save-every", type=int, default=2 if TINY else 2000)
    p.add_argument("--log-every", type=int, default=2 if TINY else 20)
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    vocab, d, h, layers = (128, 32, 2, 1) if TINY else (32768, 768, 12, 12)
    out = args.out or tempfile.mkdtemp(prefix="gpt_")
    model = GPT(vocab, args.seq, d, h, layers).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / 100) * 0.5 * (1 + math.cos(math.pi * min(1, s / args.steps))))
    loader = DataLoader(Tokens(args.data, args.seq, vocab), batch_size=args.batch, shuffle=True, drop_last=True, num_workers=2, pin_memory=device == "cuda", persistent_workers=True)
    step, start = 0, time.time()
    while step < args.steps and time.time() - start < args.max_seconds:
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            with torch.autocast(device, torch.bfloat16):
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad(set_to_none=True)
            step += 1
            if step % args.log_every == 0:
                print(f"step {step} loss {loss.item():.4f} {step * args.batch * args.seq / (time.time() - start):.0f} tok/s", flush=True)
            if step % args.save_every == 0:
                save_checkpoint(os.path.join(out, "last.pt"), model, opt, step)
            if step >= args.steps or time.time() - start > args.max_seconds:
                break
    print(f"done: {step} steps in {time.time() - start:.1f} s, checkpoints in {out}")


if __name__ == "__main__":
    main()
