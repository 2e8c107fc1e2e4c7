#!/usr/bin/env python
"""Embed a small folder of documents and save the vectors."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

TINY = os.environ.get("TINY") == "1"


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
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Embedder(nn.Module):
    def __init__(self, vocab, d, h, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList([Block(d, h) for _ in range(layers)])
        self.ln = nn.LayerNorm(d)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        return F.normalize(self.ln(x).mean(1).float(), dim=-1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--documents", type=int, default=8 if TINY else 1024)
    p.add_argument("--batch", type=int, default=4 if TINY else 128)
    p.add_argument("--length", type=int, default=8 if TINY else 512)
    p.add_argument("--out", default=None)
    args = p.parse_args()
    start = time.time()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    vocab, d, h, layers = (64, 32, 2, 1) if TINY else (30000, 1024, 16, 16)
    with torch.device(device):
        model = Embedder(vocab, d, h, layers).to(torch.bfloat16 if device == "cuda" else torch.float32).eval()
    documents = np.random.default_rng(0).integers(0, vocab, (args.documents, args.length))
    vectors = []
    with torch.inference_mode():
        for k in range(0, args.documents, args.batch):
            ids = torch.from_numpy(documents[k : k + args.batch]).to(device)
            vectors.append(model(ids).cpu().numpy())
            print(f"{k + len(ids)}/{args.documents} documents, {time.time() - start:.1f} s", flush=True)
    out = args.out or os.path.join(tempfile.mkdtemp(), "vectors.npy")
    np.save(out, np.concatenate(vectors))
    print(f"saved {out} after {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
