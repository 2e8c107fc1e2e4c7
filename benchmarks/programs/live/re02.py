"""Expert-parallel language model with hash routing, experts split over the ranks."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

SIZING = {"slow": "full", "fixed": "ratio"}


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        back = torch.empty_like(grad)
        dist.all_to_all_single(back, grad.contiguous())
        return back


class Experts(nn.Module):
    def __init__(self, count, width, hidden):
        super().__init__()
        self.up = nn.Parameter(torch.randn(count, width, hidden) / math.sqrt(width))
        self.down = nn.Parameter(torch.randn(count, hidden, width) / math.sqrt(hidden))

    def forward(self, x):
        return torch.bmm(F.gelu(torch.bmm(x, self.up)), self.down)


class RoutedMlp(nn.Module):
    def __init__(self, width, hidden, experts, vocab, salt, sizing, factor=1.25):
        super().__init__()
        self.experts_total, self.sizing, self.factor = experts, sizing, factor
        self.world = dist.get_world_size()
        self.local = Experts(experts // self.world, width, hidden)
        g = torch.Generator().manual_seed(salt)
        self.register_buffer("table", torch.randint(experts, (vocab,), generator=g))

    def room(self, counts):
        if self.sizing == "ratio":
            return math.ceil(self.factor * int(counts.sum()) / self.experts_total)
        peak = counts.max()
        dist.all_reduce(peak, op=dist.ReduceOp.MAX)
        return int(peak)

    def plan(self, tokens):
        expert = self.table[tokens]
        counts = torch.bincount(expert, minlength=self.experts_total)
        order = torch.argsort(expert, stable=True)
        starts = counts.cumsum(0) - counts
        place = torch.empty_like(expert)
        place[order] = torch.arange(len(expert)) - starts[expert[order]]
        room = self.room(counts)
        ok = place < room
        return expert[ok] * room + place[ok], ok.nonzero().squeeze(1), room

    def forward(self, x, tokens):
        slot, source, room = self.plan(tokens)
        packed = x.new_zeros(self.experts_total * room, x.shape[1]).index_copy(0, slot, x[source])
        here = Exchange.apply(packed).view(self.world, -1, room, x.shape[1])
        y = self.local(here.transpose(0, 1).flatten(1, 2))
        y = y.view(-1, self.world, room, x.shape[1]).transpose(0, 1).reshape(packed.shape)
        y = Exchange.apply(y)
        return torch.zeros_like(x).index_copy(0, source, y[slot])


class Block(nn.Module):
    def __init__(self, width, heads, **routed):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = RoutedMlp(width, 3 * width, **routed)

    def forward(self, x, tokens):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        y = self.mlp(self.n2(x).flatten(0, 1), tokens.flatten())
        return x + y.view_as(x)


class Model(nn.Module):
    def __init__(self, vocab, width, layers, sizing):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(
            Block(width, 4, experts=8, vocab=vocab, salt=31 + i, sizing=sizing) for i in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, tokens)
        return self.head(self.norm(x))


def reduce_shared(shared, world):
    flat = torch.cat([p.grad.flatten() for p in shared])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in shared:
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def zipf_tokens(g, weights, shape):
    return torch.multinomial(weights, shape[0] * shape[1], replacement=True, generator=g).view(shape)


def everyone_done(local):
    flag = torch.tensor([int(local)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def run(args, rank, world):
    torch.manual_seed(0)
    model = Model(args.vocab, args.width, args.layers, SIZING[args.variant])
    shared = [p for n, p in model.named_parameters() if ".local." not in n]
    opt = torch.optim.AdamW(model.parameters(), lr=4e-4)
    g = torch.Generator().manual_seed(50 + rank)
    weights = 1 / torch.arange(1, args.vocab + 1).float() ** 1.1
    times, total = [], 0.0
    dist.barrier()
    began = time.perf_counter()
    for _ in range(args.steps):
        t0 = time.perf_counter()
        tokens = zipf_tokens(g, weights, (args.batch, args.length + 1))
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        reduce_shared(shared, world)
        opt.step()
        total += loss.item()
        times.append((time.perf_counter() - t0) * 1e3)
        if everyone_done(time.perf_counter() - began > args.max_seconds):
            break
    return times, total / len(times)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=20)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--length", type=int, default=128)
    ap.add_argument("--vocab", type=int, default=1000)
    ap.add_argument("--width", type=int, default=160)
    ap.add_argument("--layers", type=int, default=3)
    args = ap.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    times, loss = run(args, rank, world)
    if rank == 0:
        kept = times[2:] or times
        print(json.dumps({"case": "re02", "variant": args.variant, "steps": len(times), "loss": round(loss, 3),
                          "mean_step_ms": round(statistics.fmean(kept), 2),
                          "median_step_ms": round(statistics.median(kept), 2)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
