"""Click-through-rate model: one joint table for 26 categorical fields, pairwise dots and a deep tower."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def run_steps(name, args, step, device, warmup=5):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps = []
    begin = last = time.perf_counter()
    for i in range(args.steps):
        step(warmup + i)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - begin > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - begin) / len(laps)
    print(json.dumps({"program": name, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(mean * 1e3, 3),
                      "step_ms_median": round(statistics.median(laps) * 1e3, 3)}), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                    schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for i in range(6):
                step(warmup + len(laps) + i)
                prof.step()


def parse_args(variants, steps):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=steps)
    ap.add_argument("--max-seconds", type=float, default=0.0)
    ap.add_argument("--trace", default=None)
    return ap.parse_args()


class FieldEmbedding(nn.Module):
    def __init__(self, sizes, dim, **options):
        super().__init__()
        offsets = torch.tensor([0] + sizes[:-1]).cumsum(0)
        self.register_buffer("offsets", offsets)
        self.table = nn.Embedding(sum(sizes), dim, **options)
        nn.init.normal_(self.table.weight, std=0.01)

    def forward(self, ids):
        return self.table(ids + self.offsets)


class Ranker(nn.Module):
    def __init__(self, sizes, dim, dense, hidden, **options):
        super().__init__()
        self.fields = FieldEmbedding(sizes, dim, **options)
        self.bottom = nn.Sequential(nn.Linear(dense, 512), nn.ReLU(), nn.Linear(512, dim), nn.ReLU())
        n = len(sizes) + 1
        layers, width = [], n * n + n * dim
        for h in hidden:
            layers += [nn.Linear(width, h), nn.ReLU()]
            width = h
        self.top = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, dense, ids):
        vectors = torch.cat([self.bottom(dense)[:, None], self.fields(ids)], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))
        return self.top(torch.cat([vectors.flatten(1), dots.flatten(1)], dim=1)).squeeze(1)


def build_joint(shape, device):
    model = Ranker(**shape).to(device)
    return model, [torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)]


def build_split(shape, device):
    model = Ranker(**shape, sparse=True).to(device)
    table = model.fields.table.weight
    rest = [p for p in model.parameters() if p is not table]
    return model, [torch.optim.SparseAdam([table], lr=1e-3), torch.optim.Adam(rest, lr=1e-3, fused=True)]


def main():
    args = parse_args(["slow", "fixed"], 480)
    device = torch.device(args.device)
    big = args.device == "cuda"
    rows, dim, batch, hidden = (12_000_000, 128, 32768, [1024, 512, 256]) if big else (5_200, 8, 64, [32, 16])
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    sizes = [int(rows * s) for s in (0.3, 0.2, 0.15, 0.1, 0.08, 0.05)] + [rows // 200] * 20
    shape = dict(sizes=sizes, dim=dim, dense=13, hidden=hidden)
    model, optimizers = {"slow": build_joint, "fixed": build_split}[args.variant](shape, device)
    limit = torch.tensor(sizes, device=device)
    pool = []
    for _ in range(16):
        ids = (torch.rand(batch, 26, device=device) ** 4 * limit).long().clamp_(max=limit - 1)
        pool.append((torch.randn(batch, 13, device=device), ids, (torch.rand(batch, device=device) < 0.03).float()))

    def step(i):
        dense, ids, clicks = pool[i % len(pool)]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(dense, ids)
        loss = F.binary_cross_entropy_with_logits(logits.float(), clicks)
        for opt in optimizers:
            opt.zero_grad(set_to_none=True)
        loss.backward()
        for opt in optimizers:
            opt.step()

    run_steps("x05", args, step, device)


if __name__ == "__main__":
    main()
