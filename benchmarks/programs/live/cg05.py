"""Small causal language model trained on token windows, with a line of metrics for every step."""
import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

D, HEADS, VOCAB, T = 512, 8, 2048, 128


class Windows(Dataset):
    def __init__(self, n=200_000):
        g = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, VOCAB, (n,), generator=g)

    def __len__(self):
        return (len(self.tokens) - 1) // T - 1

    def __getitem__(self, i):
        w = self.tokens[i * T : i * T + T + 1]
        return w[:-1], w[1:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (h.view(b, t, HEADS, -1).transpose(1, 2) for h in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.relu(self.up(self.ln2(x))))


class LM(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, D)
        self.pos = nn.Embedding(T, D)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.ln = nn.LayerNorm(D)
        self.head = nn.Linear(D, VOCAB, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos.weight
        for b in self.blocks:
            x = b(x)
        return self.head(self.ln(x))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["healthy"], default="healthy")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=20)
    a = ap.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Windows(), batch_size=4, shuffle=True, drop_last=True, num_workers=0)
    net = LM()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-4, fused=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50))
    times, done = [], False
    began = last = time.perf_counter()
    while not done:
        for x, y in loader:
            loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten())
            loss.backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            sched.step()
            print(json.dumps({"step": len(times), "loss": round(loss.item(), 4), "grad_norm": round(norm.item(), 4),
                              "lr": sched.get_last_lr()[0]}), file=sys.stderr, flush=True)
            now = time.perf_counter()
            times.append(now - last)
            last = now
            done = len(times) >= a.steps or now - began > a.max_seconds
            if done:
                break
    t = times[2:] if len(times) > 4 else times
    print(json.dumps({"steps": len(times), "mean_step_ms": 1e3 * statistics.mean(t), "median_step_ms": 1e3 * statistics.median(t)}))


if __name__ == "__main__":
    main()
