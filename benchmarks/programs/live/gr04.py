"""Sparse mixture blocks: tokens travel to the rank that keeps their expert, and back."""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

GPU = torch.cuda.is_available()
D, FF, EXPERTS, BLOCKS, TOKENS = (2048, 8192, 16, 3, 24576) if GPU else (32, 64, 8, 2, 128)
DTYPE = torch.bfloat16 if GPU else torch.float32


class Travel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, send, recv):
        ctx.send, ctx.recv = send, recv
        out = x.new_empty(sum(recv), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), recv, send)
        return out

    @staticmethod
    def backward(ctx, g):
        out = g.new_empty(sum(ctx.send), g.shape[1])
        dist.all_to_all_single(out, g.contiguous(), ctx.send, ctx.recv)
        return out, None, None


class Mixture(nn.Module):
    def __init__(self, centres, owner, rank, world):
        super().__init__()
        self.world = world
        self.register_buffer("centres", centres)
        order = torch.argsort(owner, stable=True)
        slot = torch.empty_like(order)
        slot[order] = torch.arange(EXPERTS, device=order.device)
        self.register_buffer("slot", slot)
        self.mine = EXPERTS // world
        self.norm = nn.LayerNorm(D)
        self.w_in = nn.Parameter(torch.randn(self.mine, D, FF) * D ** -0.5)
        self.w_out = nn.Parameter(torch.randn(self.mine, FF, D) * FF ** -0.5)

    def route(self, x):
        score = F.normalize(x, dim=-1) @ self.centres.t()
        top = score.float().max(dim=-1)
        return self.slot[top.indices], torch.sigmoid(4 * top.values).to(x.dtype)

    def forward(self, h, key):
        x = self.norm(h)
        slot, gate = self.route(key)
        perm = torch.argsort(slot)
        counts = torch.bincount(slot, minlength=EXPERTS)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        both = torch.stack([counts, theirs]).view(2, self.world, self.mine).tolist()
        send = [sum(r) for r in both[0]]
        recv = [sum(r) for r in both[1]]
        got = Travel.apply(x[perm], send, recv)
        chunks = got.split([n for r in both[1] for n in r])
        outs = [[None] * self.mine for _ in range(self.world)]
        for e in range(self.mine):
            parts = [chunks[r * self.mine + e] for r in range(self.world)]
            y = F.gelu(torch.cat(parts) @ self.w_in[e]) @ self.w_out[e]
            for r, piece in enumerate(y.split([p.shape[0] for p in parts])):
                outs[r][e] = piece
        back = Travel.apply(torch.cat([p for row in outs for p in row]), recv, send)
        y = torch.empty_like(h).index_copy(0, perm, back)
        return h + gate[:, None] * y


class Net(nn.Module):
    def __init__(self, centres, owner, rank, world):
        super().__init__()
        self.enter = nn.Linear(D, D)
        self.blocks = nn.ModuleList(Mixture(centres, owner, rank, world) for _ in range(BLOCKS))
        self.leave = nn.Linear(D, EXPERTS)

    def forward(self, x):
        h = self.enter(x)
        for b in self.blocks:
            h = b(h, x)
        return self.leave(h)


class Topics:
    """Token vectors scattered about topic centres; topics are numbered by how common they are."""

    def __init__(self, centres, seed, dev):
        self.c = centres
        self.g = torch.Generator(device=dev).manual_seed(seed)
        self.p = 0.82 ** torch.arange(EXPERTS, device=dev, dtype=torch.float32)

    def next(self):
        t = torch.multinomial(self.p, TOKENS, replacement=True, generator=self.g)
        noise = torch.randn(TOKENS, D, generator=self.g, device=self.c.device, dtype=self.c.dtype)
        return self.c[t] + 0.25 * noise * D ** -0.5, t


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--max-seconds", type=float, default=26.0)
    args = ap.parse_args()
    dev = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")
    if GPU:
        torch.cuda.set_device(dev)
    dist.init_process_group("nccl" if GPU else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    centres = F.normalize(torch.randn(EXPERTS, D, device=dev), dim=-1).to(DTYPE)
    e = torch.arange(EXPERTS, device=dev)
    if args.variant == "slow":
        owner = e * world // EXPERTS
    else:
        owner = torch.minimum(e % (2 * world), 2 * world - 1 - e % (2 * world))
    with torch.device(dev):
        net = Net(centres, owner, rank, world).to(DTYPE)
    shared = [p for n, p in net.named_parameters() if not n.rpartition(".")[2].startswith("w_")]
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    topics = Topics(centres, 40 + rank, dev)
    skip = 6 if args.steps > 20 else 1
    marks, begin, shown = [], time.perf_counter(), 0.0
    for step in range(args.steps):
        x, t = topics.next()
        loss = F.cross_entropy(net(x).float(), t)
        loss.backward()
        flat = torch.cat([p.grad.reshape(-1) for p in shared])
        dist.all_reduce(flat)
        for p, g in zip(shared, flat.div_(world).split([p.numel() for p in shared])):
            p.grad.copy_(g.view_as(p))
        opt.step()
        opt.zero_grad(set_to_none=True)
        shown = loss.item()
        if GPU:
            torch.cuda.synchronize()
        marks.append(time.perf_counter())
        if step % 5 == 4:
            flag = torch.tensor([int(marks[-1] - begin > args.max_seconds)], device=dev)
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)
            if flag.item():
                break
    d = sorted(1e3 * (b - a) for a, b in zip(marks[skip - 1:], marks[skip:]))
    if rank == 0:
        print(json.dumps({"variant": args.variant, "steps": len(marks), "loss": round(shown, 4),
                          "mean_ms": round(sum(d) / len(d), 3), "median_ms": round(d[len(d) // 2], 3)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
