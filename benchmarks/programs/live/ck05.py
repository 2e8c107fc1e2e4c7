"""Train an encoder with kernel-feature attention on long sequences."""
import argparse, json, math, statistics, time
import torch
from torch import nn
import torch.nn.functional as F


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--max-seconds", type=float, default=28)
    p.add_argument("--length", type=int, default=1024)
    return p.parse_args()


def features(x):
    return F.elu(x) + 1.0


class KernelAttention(nn.Module):
    def __init__(self, dim, heads, variant):
        super().__init__()
        self.heads, self.variant = heads, variant
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def split(self, x):
        b, n, _ = x.shape
        return x.view(b, n, self.heads, -1).transpose(1, 2)

    def mix(self, q, k, v, mask):
        k = k * mask
        norm = q @ k.sum(2, keepdim=True).transpose(-1, -2)
        if self.variant == "fixed":
            y = q @ (k.transpose(-1, -2) @ v)
        else:
            y = q @ k.transpose(-1, -2) @ v
        return y / (norm + 1e-6)

    def forward(self, x, mask):
        q, k, v = map(self.split, self.qkv(x).chunk(3, -1))
        y = self.mix(features(q), features(k), v, mask)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, dim, heads, variant):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.att = KernelAttention(dim, heads, variant)
        self.ff = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim))

    def forward(self, x, mask):
        x = x + self.att(self.n1(x), mask)
        return x + self.ff(self.n2(x))


class Encoder(nn.Module):
    def __init__(self, vocab, dim, depth, heads, length, variant):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        pos = torch.arange(length).unsqueeze(1) * torch.exp(torch.arange(0, dim, 2) * (-math.log(1e4) / dim))
        self.register_buffer("pos", torch.stack([pos.sin(), pos.cos()], -1).flatten(1))
        self.blocks = nn.ModuleList(Block(dim, heads, variant) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 10)

    def forward(self, ids, mask):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        m = mask.view(mask.shape[0], 1, -1, 1)
        for b in self.blocks:
            x = b(x, m)
        pooled = (self.norm(x) * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return self.head(pooled)


def make_batch(g, batch, length, vocab):
    ids = torch.randint(0, vocab, (batch, length), generator=g)
    size = torch.randint(length // 2, length + 1, (batch,), generator=g)
    mask = (torch.arange(length) < size.unsqueeze(1)).float()
    return ids, mask, ids[:, 0] % 10


def main():
    args = parse()
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    net = Encoder(500, 128, 3, 4, args.length, args.variant)
    opt = torch.optim.AdamW(net.parameters(), lr=5e-4)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50))
    ms, begin = [], time.perf_counter()
    for step in range(args.steps):
        t = time.perf_counter()
        ids, mask, label = make_batch(g, 4, args.length, 500)
        loss = F.cross_entropy(net(ids, mask), label)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        ms.append((time.perf_counter() - t) * 1e3)
        if step % 50 == 49:
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    body = ms[3:] or ms
    print(json.dumps({"case": "ck05", "variant": args.variant, "steps": len(ms), "mean_ms": round(statistics.fmean(body), 3),
                      "median_ms": round(statistics.median(body), 3), "cpu_s": round(time.process_time(), 2)}))


if __name__ == "__main__":
    main()
