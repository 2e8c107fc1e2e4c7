"""Pipeline of residual MLP-attention stages over point-to-point messages."""
import argparse
import json
import os
import time
from collections import deque

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

GPU = torch.cuda.is_available()
D, HEADS, SEQ, MB, DEPTH, MICRO = (2048, 16, 1024, 4, 10, 8) if GPU else (32, 2, 8, 2, 4, 4)
CLASSES = 512
DTYPE = torch.bfloat16 if GPU else torch.float32


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Stage(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.emb = nn.Embedding(CLASSES, D) if rank == 0 else None
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH // world))
        self.head = nn.Linear(D, CLASSES) if rank == world - 1 else None

    def forward(self, x):
        x = self.emb(x) if self.emb is not None else x
        for layer in self.layers:
            x = layer(x)
        return self.head(x) if self.head is not None else x


class Runner:
    def __init__(self, stage, rank, world, dev, variant):
        self.stage, self.rank, self.world, self.dev = stage, rank, world, dev
        self.first, self.last = rank == 0, rank == world - 1
        self.down, self.up = dist.new_group(), dist.new_group()
        self.ahead = world - rank - (1 if variant == "fixed" else 2)
        self.pending = []
        self.greet()

    def greet(self):
        t = torch.zeros(1, device=self.dev)
        for group, step in ((self.down, 1), (self.up, -1)):
            src, dst = self.rank - step, self.rank + step
            if 0 <= src < self.world:
                dist.irecv(t, src, group=group).wait()
            if 0 <= dst < self.world:
                dist.isend(t, dst, group=group).wait()
        if GPU:
            torch.cuda.synchronize()

    def take(self, src, group):
        buf = torch.empty(MB, SEQ, D, dtype=DTYPE, device=self.dev)
        dist.irecv(buf, src, group=group).wait()
        return buf

    def give(self, t, dst, group):
        self.pending.append((dist.isend(t, dst, group=group), t))

    def forward_one(self, ids, tgt):
        if self.first:
            x = ids
        else:
            x = self.take(self.rank - 1, self.down).requires_grad_()
        y = self.stage(x)
        if self.last:
            y = F.cross_entropy(y.float().flatten(0, 1), tgt.flatten()) / MICRO
            self.total += y.detach()
        else:
            self.give(y.detach(), self.rank + 1, self.down)
        self.live.append((x, y))

    def backward_one(self):
        x, y = self.live.popleft()
        if self.last:
            y.backward()
        else:
            y.backward(self.take(self.rank + 1, self.up))
        if not self.first:
            self.give(x.grad, self.rank - 1, self.up)

    def step(self, ids, tgt):
        self.live = deque()
        self.total = torch.zeros((), device=self.dev)
        warm = max(0, min(self.ahead, MICRO))
        for i in range(warm):
            self.forward_one(ids[i], tgt[i])
        for i in range(warm, MICRO):
            self.forward_one(ids[i], tgt[i])
            self.backward_one()
        while self.live:
            self.backward_one()
        for work, _ in self.pending:
            work.wait()
        self.pending.clear()
        return self.total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=2000)
    ap.add_argument("--max-seconds", type=float, default=26.0)
    args = ap.parse_args()
    dev = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")
    if GPU:
        torch.cuda.set_device(dev)
        dist.init_process_group("nccl", device_id=dev)
    else:
        dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    with torch.device(dev):
        stage = Stage(rank, world).to(DTYPE)
    opt = torch.optim.AdamW(stage.parameters(), lr=1e-4)
    run = Runner(stage, rank, world, dev, args.variant)
    gen = torch.Generator(device=dev).manual_seed(7)
    skip = 5 if args.steps > 20 else 1
    marks, begin, loss = [], time.perf_counter(), None
    for step in range(args.steps):
        ids = torch.randint(CLASSES, (MICRO, MB, SEQ), generator=gen, device=dev)
        loss = run.step(ids, (ids * 7 + 3) % CLASSES)
        torch.nn.utils.clip_grad_norm_(stage.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if GPU:
            torch.cuda.synchronize()
        marks.append(time.perf_counter())
        if step % 4 == 3:
            flag = torch.tensor([int(marks[-1] - begin > args.max_seconds)], device=dev)
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)
            if flag.item():
                break
    dist.all_reduce(loss)
    d = sorted(1e3 * (b - a) for a, b in zip(marks[skip - 1:], marks[skip:]))
    if rank == 0:
        print(json.dumps({"variant": args.variant, "steps": len(marks), "loss": round(loss.item(), 3),
                          "mean_ms": round(sum(d) / len(d), 3), "median_ms": round(d[len(d) // 2], 3)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
