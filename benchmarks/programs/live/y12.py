"""Tensor-parallel training of a decoder: torchrun --nproc-per-node 2 y12.py"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Enter(torch.autograd.Function):
    """Into a parallel region: identity forward, sum of the gradients backward."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g)
        return g


class Leave(torch.autograd.Function):
    """Out of a parallel region: sum of the partial results forward, identity backward."""

    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Collect(torch.autograd.Function):
    """Joins the ranks' last dimensions."""

    @staticmethod
    def forward(ctx, x):
        ctx.width = x.shape[-1]
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(ctx, g):
        return g.narrow(-1, dist.get_rank() * ctx.width, ctx.width).contiguous()


class ShardedNLL(torch.autograd.Function):
    """Mean cross-entropy over a vocabulary whose columns are spread over the ranks."""

    @staticmethod
    def forward(ctx, logits, targets):
        width = logits.shape[-1]
        top = logits.amax(-1, keepdim=True).float()
        dist.all_reduce(top, op=dist.ReduceOp.MAX)
        e = logits.float().sub_(top)
        local = targets - dist.get_rank() * width
        mine = (local >= 0) & (local < width)
        local = local.clamp(0, width - 1)
        at = e.gather(-1, local[:, None]).squeeze(-1) * mine
        e.exp_()
        stats = torch.stack((e.sum(-1), at))
        dist.all_reduce(stats)
        e.div_(stats[0][:, None])
        ctx.save_for_backward(e, local, mine)
        ctx.dtype = logits.dtype
        return (stats[0].log() - stats[1]).mean()

    @staticmethod
    def backward(ctx, g):
        p, local, mine = ctx.saved_tensors
        grad = p.mul_(g / len(local))
        grad.scatter_add_(-1, local[:, None], (mine * (-g / len(local)))[:, None])
        return grad.to(ctx.dtype), None


def loss_on_logits(logits, targets):
    return F.cross_entropy(Collect.apply(logits).float(), targets)


def loss_on_shards(logits, targets):
    return ShardedNLL.apply(logits, targets)


class Block(nn.Module):
    def __init__(self, d, heads, world):
        super().__init__()
        self.heads = heads // world
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d // world, bias=False)
        self.proj = nn.Linear(d // world, d, bias=False)
        self.up = nn.Linear(d, 4 * d // world, bias=False)
        self.down = nn.Linear(4 * d // world, d, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        h = Enter.apply(self.n1(x))
        q, k, v = self.qkv(h).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + Leave.apply(self.proj(a.transpose(1, 2).reshape(b, t, -1)))
        h = Enter.apply(self.n2(x))
        return x + Leave.apply(self.down(F.gelu(self.up(h), approximate="tanh")))


class Decoder(nn.Module):
    def __init__(self, vocab, ctx, d, depth, heads, world, rank):
        super().__init__()
        torch.manual_seed(0)
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.norm = nn.LayerNorm(d)
        torch.manual_seed(100 + rank)
        self.blocks = nn.ModuleList(Block(d, heads, world) for _ in range(depth))
        self.head = nn.Linear(d, vocab // world, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(Enter.apply(self.norm(x))).flatten(0, 1)


class Run:
    def __init__(self, args, device):
        rank, world = dist.get_rank(), dist.get_world_size()
        cuda = args.device == "cuda"
        vocab, ctx, d, depth, heads, batch = (151936, 2048, 2048, 8, 16, 4) if cuda else (512, 16, 32, 2, 4, 2)
        dtype = torch.bfloat16 if cuda else torch.float32
        self.net = Decoder(vocab, ctx, d, depth, heads, world, rank).to(device, dtype)
        self.loss = {"slow": loss_on_logits, "fixed": loss_on_shards}[args.variant]
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)
        gen = torch.Generator().manual_seed(1)
        self.ids = torch.randint(vocab, (6, batch, ctx + 1), generator=gen).to(device)
        self.total = torch.zeros((), device=device)
        self.i = 0

    def step(self):
        ids = self.ids[self.i % len(self.ids)]
        self.i += 1
        loss = self.loss(self.net(ids[:, :-1]), ids[:, 1:].reshape(-1))
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.total += loss.detach()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--max-seconds", type=float, default=1e9)
    p.add_argument("--trace")
    args = p.parse_args()
    cuda = args.device == "cuda"
    local = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    rank = dist.get_rank()
    run = Run(args, device)
    sync = torch.cuda.synchronize if cuda else (lambda: None)

    for _ in range(5):
        run.step()
    sync()
    dist.barrier()
    times, start = [], time.perf_counter()
    last = start
    for i in range(args.steps):
        run.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if args.max_seconds < 1e8 and i % 8 == 7:
            over = torch.tensor(float(now - start > args.max_seconds), device=device)
            dist.all_reduce(over, op=dist.ReduceOp.MAX)
            if over.item():
                break
    sync()
    mean = (time.perf_counter() - start) / len(times)
    if rank == 0:
        print(json.dumps({"program": "y12", "variant": args.variant, "steps": len(times),
                          "step_ms_mean": round(1e3 * mean, 3),
                          "step_ms_median": round(1e3 * statistics.median(times), 3)}), flush=True)

    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        path = args.trace if rank == 0 else args.trace.replace(".json.gz", f".rank{rank}.json.gz")
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        with profile(activities=acts, schedule=schedule(wait=0, warmup=2, active=4), record_shapes=True,
                     with_stack=True, with_modules=True,
                     on_trace_ready=lambda prof: prof.export_chrome_trace(path)) as prof:
            for _ in range(6):
                run.step()
                prof.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
