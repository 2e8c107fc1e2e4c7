"""Sequential recommendation: self-attention over click histories, in-batch negatives."""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        # histories are left padded, so the causal triangle is all that is needed
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x))


class NextItem(nn.Module):
    def __init__(self, items, dim, length, variant):
        super().__init__()
        self.items = nn.Parameter(torch.randn(items, dim) * 0.02)
        self.position = nn.Parameter(torch.zeros(length, dim))
        self.layers = nn.Sequential(Encoder(dim, 4), Encoder(dim, 4))
        self.norm = nn.LayerNorm(dim)
        self.variant = variant

    def lookup(self, ids):
        if self.variant == "slow":
            return self.items[ids]
        return F.embedding(ids, self.items)

    def forward(self, history, target):
        x = self.lookup(history) + self.position
        user = self.norm(self.layers(x)[:, -1])
        cand = self.lookup(target)
        logits = user @ cand.t() / user.shape[-1] ** 0.5
        same = target[None, :] == target[:, None]
        same.fill_diagonal_(False)
        logits = logits.masked_fill(same, -1e4)
        return F.cross_entropy(logits, torch.arange(len(target), device=target.device))


class ClickLog:
    """Histories of roughly 35..length clicks, popularity following a power law; id 0 fills the front."""

    def __init__(self, users, items, length, seed=5):
        rng = np.random.default_rng(seed)
        u = rng.random((users, length + 1))
        ids = 1 + (u**2.5 * (items - 1)).astype(np.int64)
        n = rng.integers(int(length * 0.7), length + 1, users)
        ids[:, :-1][np.arange(length)[None, :] < (length - n)[:, None]] = 0
        self.ids = torch.from_numpy(ids)

    def to(self, device):
        self.ids = self.ids.to(device)
        return self

    def epochs(self, batch):
        while True:
            order = torch.randperm(len(self.ids), device=self.ids.device)
            for part in order.split(batch):
                if len(part) == batch:
                    rows = self.ids[part]
                    yield rows[:, :-1], rows[:, -1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=900)
    ap.add_argument("--max-seconds", type=float, default=36)
    args = ap.parse_args()
    torch.manual_seed(0)
    gpu = args.device == "cuda"
    users, items, dim, length, batch = (
        (400_000, 500_000, 128, 50, 4096) if gpu else (600, 500, 64, 20, 64)
    )
    if gpu:
        torch.set_float32_matmul_precision("high")
    log = ClickLog(users, items, length).to(args.device)
    model = NextItem(items, dim, length, args.variant).to(args.device)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), fused=gpu)
    meter, t0 = [], time.perf_counter()
    for step, (history, target) in enumerate(log.epochs(batch), 1):
        loss = model(history, target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        meter.append(loss.detach())
        if step % 50 == 0 or step == args.steps:
            print(f"step {step} loss {torch.stack(meter[-50:]).mean().item():.4f}", flush=True)
        if step >= args.steps or time.perf_counter() - t0 > args.max_seconds:
            break
    last = meter[-1].item()
    took = time.perf_counter() - t0
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


if __name__ == "__main__":
    main()
