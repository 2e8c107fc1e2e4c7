"""Two-rank data-parallel language-model training with gradient accumulation (torchrun --nproc-per-node 2)."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

NAME = "t12"
STEPS = 65
WARMUP = 3


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm_a(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm_b(x)), approximate="tanh"))


class LanguageModel(nn.Module):
    def __init__(self, vocab, width, heads, depth, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, target):
        x = self.embed(ids) + self.place
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(F.linear(self.norm(x), self.embed.weight).flatten(0, 1), target.flatten())


def loss_of(model, ids):
    with torch.autocast(ids.device.type, dtype=torch.bfloat16):
        return model(ids[:, :-1], ids[:, 1:])


def accumulate_backward(model, parts):
    """Gradients of the mean over the parts; they are exchanged with the last one."""
    for part in parts[:-1]:
        loss = loss_of(model, part) / len(parts)
        with model.no_sync():
            loss.backward()
    (loss_of(model, parts[-1]) / len(parts)).backward()


def accumulate_whole(model, parts):
    """Gradients of the mean over the parts; they are exchanged with the last one."""
    with model.no_sync():
        for part in parts[:-1]:
            (loss_of(model, part) / len(parts)).backward()
    (loss_of(model, parts[-1]) / len(parts)).backward()


VARIANTS = {"slow": accumulate_backward, "fixed": accumulate_whole}


def build(device, rank, accumulate):
    gpu = device.type == "cuda"
    vocab, width, heads, depth, length, batch, parts = (100352, 2048, 16, 12, 1024, 1, 8) if gpu else (64, 32, 2, 2, 16, 2, 3)
    torch.manual_seed(0)
    model = LanguageModel(vocab, width, heads, depth, length).to(device)
    nn.init.normal_(model.embed.weight, std=0.02)
    model = DistributedDataParallel(model, device_ids=[device.index] if gpu else None, gradient_as_bucket_view=True)
    optim = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.manual_seed(100 + rank)
    data = torch.randint(0, vocab, (32, parts, batch, length + 1), device=device)
    state = {"at": 0}

    def step():
        accumulate(model, data[state["at"] % len(data)].unbind(0))
        state["at"] += 1
        optim.step()
        optim.zero_grad()

    return step


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--variant", choices=sorted(VARIANTS), default="slow")
    ap.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    ap.add_argument("--steps", type=int, default=STEPS)
    ap.add_argument("--max-seconds", type=float, default=None)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    gpu = args.device == "cuda"
    device = torch.device("cuda", local) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo", device_id=device if gpu else None)

    def settle():
        if gpu:
            torch.cuda.synchronize()

    step = build(device, rank, VARIANTS[args.variant])
    for _ in range(WARMUP):
        step()
    settle()
    begin = time.perf_counter()
    for _ in range(2):
        step()
    settle()
    steps = args.steps
    if args.max_seconds:
        pace = torch.tensor([(time.perf_counter() - begin) / 2], device=device, dtype=torch.float64)
        dist.all_reduce(pace, dist.ReduceOp.MAX)
        steps = max(1, min(steps, int(args.max_seconds / pace.item())))
    settle()
    marks = []
    begin = last = time.perf_counter()
    for _ in range(steps):
        step()
        now = time.perf_counter()
        marks.append((now - last) * 1e3)
        last = now
    settle()
    mean = (time.perf_counter() - begin) * 1e3 / steps
    if rank == 0:
        print(json.dumps({"program": NAME, "variant": args.variant, "steps": steps, "step_ms_mean": round(mean, 3),
                          "step_ms_median": round(statistics.median(marks), 3)}), flush=True)
    if args.trace:
        path = args.trace if rank == 0 else args.trace.replace(".json.gz", f".rank{rank}.json.gz")
        activities = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if gpu else [])
        with torch.profiler.profile(activities=activities, schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
                                    record_shapes=True, with_stack=True, with_modules=True,
                                    on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
            for _ in range(6):
                step()
                prof.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
