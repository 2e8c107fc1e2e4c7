"""Two-rank data-parallel language model training on length-bucketed micro-batches with gradient accumulation.

torchrun --nproc-per-node 2 o06.py --variant ...
"""
import argparse
import contextlib
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

PROGRAM = "o06"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 90
WARMUP = 8


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def agree(flag, device):
    """True on every rank as soon as it is true on one of them."""
    vote = torch.tensor([float(flag)], device=device)
    dist.all_reduce(vote, op=dist.ReduceOp.MAX)
    return bool(vote.item())


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step, rank):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and len(laps) % 8 == 0 and agree(now - start > args.max_seconds, device):
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    if rank == 0:
        print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                          "step_ms_mean": round(total / len(laps), 3),
                          "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        path = args.trace if rank == 0 else args.trace.removesuffix(".json.gz") + f".rank{rank}.json.gz"
        record_trace(path, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocab, dim, heads, layers, max_len):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids[:, :-1]) + self.pos.weight[: ids.shape[1] - 1]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), ids[:, 1:].flatten())


class BucketSampler:
    """Draws the bucket lengths of one optimizer step; the same stream on every rank."""

    def __init__(self, count, shortest, longest, multiple, seed=0):
        self.count, self.shortest, self.longest, self.multiple = count, shortest, longest, multiple
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self):
        x = torch.randn(self.count, generator=self.gen).mul(0.75).exp() * self.shortest * 2.5
        x = x.clamp(self.shortest, self.longest).div(self.multiple).ceil().long() * self.multiple
        return sorted(x.tolist())


def assign_blocks(lengths, rank, world):
    per_rank = len(lengths) // world
    return lengths[rank * per_rank:(rank + 1) * per_rank]


def assign_zigzag(lengths, rank, world):
    mine = []
    for i, length in enumerate(reversed(lengths)):
        turn, seat = divmod(i, world)
        owner = seat if turn % 2 == 0 else world - 1 - seat
        if owner == rank:
            mine.append(length)
    return mine


ASSIGN = {"slow": assign_blocks, "fixed": assign_zigzag}


def main():
    args = parse_args()
    rank, world, local = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])
    if args.device == "cuda":
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
        vocab, dim, heads, layers, batch, accum, shortest, longest, multiple = 16384, 1024, 16, 12, 8, 4, 192, 2048, 64
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
        vocab, dim, heads, layers, batch, accum, shortest, longest, multiple = 128, 32, 2, 1, 2, 2, 8, 64, 8
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = GPT(vocab, dim, heads, layers, longest).to(device)
    ddp = DistributedDataParallel(model, device_ids=[local] if device.type == "cuda" else None,
                                  gradient_as_bucket_view=True, static_graph=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    sampler = BucketSampler(accum * world, shortest, longest, multiple)
    assign = ASSIGN[args.variant]
    corpus = torch.randint(vocab, (batch, longest * 8), device=device)

    def micro_batch(length):
        start = int(torch.randint(longest * 8 - length - 1, (1,)))
        return corpus[:, start: start + length]

    def step():
        lengths = assign(sampler.draw(), rank, world)
        optimizer.zero_grad(set_to_none=True)
        for i, length in enumerate(lengths):
            sync = contextlib.nullcontext() if i == len(lengths) - 1 else ddp.no_sync()
            with sync:
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    loss = ddp(micro_batch(length)) / len(lengths)
                loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    run_loop(args, device, step, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
