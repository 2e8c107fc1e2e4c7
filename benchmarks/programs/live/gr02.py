"""Decoder pre-training with fully_shard and per-tensor gradient health limits."""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

GPU = torch.cuda.is_available()
CFG = dict(layers=24, d=1024, heads=16, vocab=32000, seq=1024, batch=8) if GPU else \
    dict(layers=2, d=32, heads=2, vocab=64, seq=16, batch=2)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tok = nn.Embedding(c["vocab"], c["d"])
        self.pos = nn.Parameter(torch.zeros(c["seq"], c["d"]))
        self.blocks = nn.ModuleList(Block(c["d"], c["heads"]) for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(c["d"])
        self.head = nn.Linear(c["d"], c["vocab"], bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.norm(x))


class GradHealth:
    """Holds every tensor's gradient near its own running norm."""

    def __init__(self, model, variant, decay=0.95, limit=4.0):
        self.names = [n for n, _ in model.named_parameters()]
        self.params = [p for _, p in model.named_parameters()]
        self.variant, self.decay, self.limit = variant, decay, limit
        self.usual = {}
        self.hits = 0

    def measure(self):
        grads = [p.grad for p in self.params]
        if self.variant == "slow":
            return [g.norm().full_tensor().item() for g in grads]
        sq = torch.stack(torch._foreach_norm([g.to_local() for g in grads])).square()
        dist.all_reduce(sq)
        return sq.sqrt().tolist()

    def apply(self):
        over = []
        for name, p, v in zip(self.names, self.params, self.measure()):
            usual = self.usual.get(name, v)
            if v > self.limit * usual and v > 1e-3:
                over.append((p.grad, self.limit * usual / v))
                v = self.limit * usual
            self.usual[name] = self.decay * usual + (1 - self.decay) * v
        for g, s in over:
            g.mul_(s)
        self.hits += len(over)


def agreed(dev, stop):
    t = torch.tensor([float(stop)], device=dev)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t.item() > 0


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=5000)
    ap.add_argument("--max-seconds", type=float, default=26.0)
    args = ap.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    dev = torch.device("cuda", local) if GPU else torch.device("cpu")
    if GPU:
        torch.cuda.set_device(dev)
    dist.init_process_group("nccl" if GPU else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(dev.type, (world,))
    torch.manual_seed(3)
    with torch.device(dev):
        model = Decoder(CFG)
    mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for blk in model.blocks:
        fully_shard(blk, mesh=mesh, mp_policy=mp)
    fully_shard(model, mesh=mesh, mp_policy=mp)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.05, fused=GPU)
    health = GradHealth(model, args.variant)

    gen = torch.Generator(device=dev).manual_seed(50 + rank)
    warm = 6 if args.steps > 20 else 1
    marks, begin, last = [], time.perf_counter(), 0.0
    for step in range(args.steps):
        ids = torch.randint(CFG["vocab"], (CFG["batch"], CFG["seq"] + 1), generator=gen, device=dev)
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        health.apply()
        opt.step()
        opt.zero_grad(set_to_none=True)
        last = loss.item()
        if GPU:
            torch.cuda.synchronize()
        marks.append(time.perf_counter())
        if step % 4 == 3 and agreed(dev, marks[-1] - begin > args.max_seconds):
            break

    d = sorted(1e3 * (b - a) for a, b in zip(marks[warm - 1:], marks[warm:]))
    if rank == 0:
        print(json.dumps({"variant": args.variant, "steps": len(marks), "loss": round(last, 3),
                          "limited": health.hits, "mean_ms": round(sum(d) / len(d), 3),
                          "median_ms": round(d[len(d) // 2], 3)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
