#!/usr/bin/env python
"""Fine-tune a language model with low-rank adapters for a few optimizer steps."""
import argparse
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

TINY = os.environ.get("TINY") == "1"


class Lora(nn.Module):
    def __init__(self, i, o, rank):
        super().__init__()
        self.base = nn.Linear(i, o, bias=False).requires_grad_(False)
        self.a, self.b = nn.Linear(i, rank, bias=False), nn.Linear(rank, o, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


class Block(nn.Module):
    def __init__(self, d, h, rank):
        super().__init__()
        self.h = h
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = Lora(d, 3 * d, rank), Lora(d, d, rank)
        self.fc, self.out = Lora(d, 4 * d, rank), Lora(4 * d, d, rank)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class LM(nn.Module):
    def __init__(self, vocab, d, h, layers, rank):
        super().__init__()
        self.emb = nn.Embedding(vocab, d).requires_grad_(False)
        self.blocks = nn.ModuleList([Block(d, h, rank) for _ in range(layers)])
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False).requires_grad_(False)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        return self.head(self.ln(x))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--per-device-batch", type=int, default=1)
    p.add_argument("--accumulate", type=int, default=4 if TINY else 64)
    p.add_argument("--length", type=int, default=8 if TINY else 384)
    p.add_argument("--steps", type=int, default=2 if TINY else 6)
    p.add_argument("--rank", type=int, default=2 if TINY else 16)
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    vocab, d, h, layers = (64, 32, 2, 1) if TINY else (32000, 1024, 16, 24)
    with torch.device(device):
        model = LM(vocab, d, h, layers, args.rank).to(torch.bfloat16 if device == "cuda" else torch.float32)
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(params, lr=2e-4, fused=True)
    data = TensorDataset(torch.randint(0, vocab, (4096, args.length + 1)))
    loader = DataLoader(data, batch_size=args.per_device_batch, shuffle=True, num_workers=2, pin_memory=device == "cuda", drop_last=True)
    start, micro, step = time.time(), 0, 0
    total = torch.zeros((), device=device)
    for (ids,) in loader:
        ids = ids.to(device, non_blocking=True)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()) / args.accumulate
        loss.backward()
        total += loss.detach()
        micro += 1
        if micro % args.accumulate == 0:
            nn.utils.clip_grad_norm_(params, 1.0)
            opt.step()
            opt.zero_grad()
            step += 1
            print(f"step {step}/{args.steps} loss {total.item():.4f} {time.time() - start:.1f} s", flush=True)
            total.zero_()
            if step == args.steps:
                break
    torch.save({k: v for k, v in model.state_dict().items() if ".a." in k or ".b." in k}, os.path.join(tempfile.mkdtemp(), "adapter.pt"))


if __name__ == "__main__":
    main()
