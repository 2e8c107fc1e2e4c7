"""Filtered link-prediction evaluation (MRR, Hits@k) of a knowledge-graph completion model."""
import argparse
import json
import statistics
import time

import torch
from torch import nn

def parse_args(variants, default_steps):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=default_steps)
    p.add_argument("--max-seconds", type=float, default=60.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(name, args, step):
    device = torch.device(args.device)

    def sync():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(5 if device.type == "cuda" else 1):
        step()
    sync()
    durations = []
    start = time.perf_counter()
    for _ in range(args.steps):
        tick = time.perf_counter()
        step()
        now = time.perf_counter()
        durations.append(now - tick)
        if now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": name,
        "variant": args.variant,
        "steps": len(durations),
        "step_ms_mean": round(1e3 * total / len(durations), 3),
        "step_ms_median": round(1e3 * statistics.median(durations), 3),
    }), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
            record_shapes=True, with_stack=True, with_modules=True,
        ) as prof:
            for _ in range(6):
                step()
                prof.step()
            sync()


class PathEncoder(nn.Module):
    """Encodes (head, relation, context neighbours) to a query vector compared with every entity."""

    def __init__(self, entities, relations, dim, width, layers):
        super().__init__()
        self.entity = nn.Embedding(entities, dim)
        self.relation = nn.Embedding(relations, dim)
        self.lift = nn.Linear(dim, width)
        self.blocks = nn.ModuleList([
            nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, activation="gelu",
                                       batch_first=True, norm_first=True) for _ in range(layers)])
        self.lower = nn.Linear(width, dim)

    def forward(self, head, relation, context):
        tokens = torch.cat([self.entity(head)[:, None], self.relation(relation)[:, None],
                            self.entity(context)], dim=1)
        x = self.lift(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lower(x[:, 0]) @ self.entity.weight.T


def rank_from_order(scores, target):
    order = torch.argsort(scores, dim=1, descending=True)
    return (order == target[:, None]).nonzero()[:, 1] + 1


def rank_from_count(scores, target):
    own = scores.gather(1, target[:, None])
    return (scores > own).sum(dim=1) + 1


def main():
    args = parse_args(["slow", "fixed"], 120)
    ranks_of = {"slow": rank_from_order, "fixed": rank_from_count}[args.variant]
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    torch.manual_seed(0)
    entities, batch, context, width, layers = (120_000, 512, 126, 1024, 8) if gpu else (500, 8, 6, 64, 1)
    dim, known = (512, 40) if gpu else (16, 3)
    model = PathEncoder(entities, 200, dim, width, layers).to(device).to(torch.bfloat16 if gpu else torch.float32)
    model.requires_grad_(False)
    draw = lambda high, *shape: torch.randint(0, high, shape, device=device)
    pool = [(draw(entities, batch), draw(200, batch), draw(entities, batch, context),
             draw(entities, batch), draw(entities, batch, known)) for _ in range(4)]
    totals = torch.zeros(3, device=device, dtype=torch.float64)
    count = 0

    @torch.no_grad()
    def step():
        nonlocal count
        head, relation, neighbours, tail, others = pool[count % len(pool)]
        count += 1
        scores = model(head, relation, neighbours).float()
        own = scores.gather(1, tail[:, None])
        scores.scatter_(1, others, float("-inf"))
        scores.scatter_(1, tail[:, None], own)
        rank = ranks_of(scores, tail).double()
        totals.add_(torch.stack([(1 / rank).sum(), (rank <= 10).sum(), (rank <= 100).sum()]))

    run_loop("o17", args, step)


if __name__ == "__main__":
    main()
