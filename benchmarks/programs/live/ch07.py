"""Causal language model under DDP; every layer holds its bias table."""
import argparse
import json
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class Attention(nn.Module):
    def __init__(self, dim, heads, context):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        slope = 2.0 ** -(8.0 / heads * torch.arange(1, heads + 1))
        distance = torch.arange(context)[None, :] - torch.arange(context)[:, None]
        bias = slope[:, None, None] * distance.float()
        self.register_buffer("bias", bias.masked_fill(distance > 0, float("-inf")))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias[:, :t, :t])
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads, context):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads, context)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class Model(nn.Module):
    def __init__(self, vocab=512, dim=192, heads=4, layers=4, context=1024):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.Sequential(*[Block(dim, heads, context) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        x = self.norm(self.blocks(self.embed(ids)))
        return x @ self.embed.weight.T


def batches(rank, size, length, vocab=512):
    g = torch.Generator().manual_seed(rank)
    while True:
        first = torch.randint(0, vocab, (size, 1), generator=g)
        stride = torch.randint(1, 7, (size, 1), generator=g)
        yield (first + stride * torch.arange(length + 1)) % vocab


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--max-seconds", type=float, default=40)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    options = {} if args.variant == "slow" else {"broadcast_buffers": False}
    model = DistributedDataParallel(Model(), **options)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    times, start, going = [], time.perf_counter(), torch.ones(1)
    for ids in batches(rank, 4, 128):
        t = time.perf_counter()
        out = model(ids[:, :-1])
        loss = F.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append((time.perf_counter() - t) * 1e3)
        if len(times) % 10 == 0:
            going.fill_(time.perf_counter() - start < args.max_seconds)
            dist.all_reduce(going, dist.ReduceOp.MIN)
            if rank == 0 and len(times) % 40 == 0:
                print(f"step {len(times)} loss {loss.item():.3f}", flush=True)
        if len(times) >= args.steps or not going.item():
            break
    if rank == 0:
        kept = sorted(times[3:])
        print(json.dumps({"mean_ms": round(sum(kept) / len(kept), 2), "median_ms": round(kept[len(kept) // 2], 2),
                          "steps": len(times)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
