"""Two-stage pipeline by send and recv: micro-batches forward, then backward (GPipe order)."""
import argparse
import json
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

VOCAB, DIM, LENGTH, MICRO, ROWS = 14000, 192, 64, 5, 2


class Block(nn.Module):
    def __init__(self, dim=DIM, heads=4):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class First(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.Sequential(*[Block() for _ in range(blocks)])

    def forward(self, ids):
        return self.blocks(self.embed(ids))


class Last(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, x, labels):
        return F.cross_entropy(self.head(self.norm(self.blocks(x))).flatten(0, 1), labels.flatten())


def batch(g):
    first = torch.randint(0, VOCAB, (MICRO, ROWS, 1), generator=g)
    stride = torch.randint(1, 9, (MICRO, ROWS, 1), generator=g)
    return (first + stride * torch.arange(LENGTH + 1)) % VOCAB


def step_first(stage, ids):
    sent, posted = [], []
    for m in range(MICRO):
        y = stage(ids[m, :, :-1])
        posted.append(dist.isend(y.detach().contiguous(), 1))
        sent.append(y)
    for y in sent:
        grad = torch.empty_like(y)
        dist.recv(grad, 1)
        y.backward(grad)
    for work in posted:
        work.wait()
    return 0.0


def step_last(stage, ids):
    got, losses, posted = [], [], []
    for m in range(MICRO):
        x = torch.empty(ROWS, LENGTH, DIM)
        dist.recv(x, 0)
        got.append(x.requires_grad_())
        losses.append(stage(x, ids[m, :, 1:]) / MICRO)
    for x, loss in zip(got, losses):
        loss.backward()
        posted.append(dist.isend(x.grad, 0))
    for work in posted:
        work.wait()
    return sum(loss.item() for loss in losses)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--max-seconds", type=float, default=40)
    args = ap.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    split = (4, 4) if args.variant == "slow" else (7, 1)
    stage = (First if rank == 0 else Last)(split[rank])
    optimizer = torch.optim.AdamW(stage.parameters(), 3e-4)
    g = torch.Generator().manual_seed(7)
    times, start, going = [], time.perf_counter(), torch.ones(1)
    while len(times) < args.steps and going.item():
        ids = batch(g)
        t = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = (step_first if rank == 0 else step_last)(stage, ids)
        optimizer.step()
        times.append((time.perf_counter() - t) * 1e3)
        if len(times) % 10 == 0:
            going.fill_(time.perf_counter() - start < args.max_seconds)
            dist.all_reduce(going, dist.ReduceOp.MIN)
        if rank == 1 and len(times) % 40 == 0:
            print(f"step {len(times)} loss {loss:.3f}", flush=True)
    if rank == 0:
        kept = sorted(times[3:])
        print(json.dumps({"mean_ms": round(sum(kept) / len(kept), 2), "median_ms": round(kept[len(kept) // 2], 2),
                          "steps": len(times)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
