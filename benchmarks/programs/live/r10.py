"""Click-through-rate training (embeddings, pairwise interactions, MLP) with a running AUC in the log."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def parse_args(variants, default_steps, cpu_steps=4):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=None)
    ap.add_argument("--max-seconds", type=float, default=1e9)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    if args.steps is None:
        args.steps = default_steps if args.device == "cuda" else cpu_steps
    return args


def run_loop(args, step, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    count = 0
    for _ in range(warmup):
        step(count)
        count += 1
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step(count)
        count += 1
        marks.append(time.perf_counter())
        if marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - marks[0]
    laps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": os.path.splitext(os.path.basename(__file__))[0],
        "variant": args.variant,
        "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 4),
        "step_ms_median": round(1e3 * statistics.median(laps), 4),
    }), flush=True)
    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        with profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                     schedule=schedule(wait=0, warmup=2, active=4, repeat=1),
                     on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                step(count)
                count += 1
                prof.step()
        sync()


def mlp(sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class ClickModel(nn.Module):
    def __init__(self, fields, rows, dim, dense, bottom, top):
        super().__init__()
        self.table = nn.Embedding(fields * rows, dim)
        self.register_buffer("offset", torch.arange(fields) * rows)
        self.bottom = mlp((dense, *bottom, dim))
        pairs = torch.tril_indices(fields + 1, fields + 1, -1)
        self.register_buffer("pairs", pairs[0] * (fields + 1) + pairs[1])
        self.top = mlp((dim + pairs.shape[1], *top, 1))

    def forward(self, numbers, ids):
        d = self.bottom(numbers)
        e = torch.cat((d.unsqueeze(1), self.table(ids + self.offset).to(d.dtype)), dim=1)
        crossed = torch.bmm(e, e.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.top(torch.cat((d, crossed), dim=1)).squeeze(1)


class AreaUnderCurve:
    def __init__(self):
        self.scores, self.targets = [], []

    def update(self, scores, targets):
        self.scores.append(scores)
        self.targets.append(targets)

    def compute(self):
        scores, targets = torch.cat(self.scores), torch.cat(self.targets)
        order = scores.argsort(descending=True)
        hit = targets[order]
        positives = hit.cumsum(0)
        above = (positives * (1 - hit)).sum()
        total = positives[-1]
        return above / (total * (hit.numel() - total)).clamp(min=1)


class Journal:
    def __init__(self, metric):
        self.metric, self.last = metric, {}

    def every_batch(self, i, loss, scores, targets):
        self.metric.update(scores, targets)
        self.last = {"loss": loss, "auc": self.metric.compute()}
        if i % 100 == 0:
            self.write()

    def every_report(self, i, loss, scores, targets):
        self.metric.update(scores, targets)
        self.last["loss"] = loss
        if i % 100 == 0:
            self.last["auc"] = self.metric.compute()
            self.write()

    def write(self):
        self.line = {key: value.item() for key, value in self.last.items()}


class Trainer:
    def __init__(self, device, log):
        self.device = device
        if device == "cuda":
            fields, rows, dim, self.batch = 26, 20_000, 32, 65536
            bottom, top = (512, 256), (1024, 1024, 512)
        else:
            fields, rows, dim, self.batch = 4, 50, 8, 64
            bottom, top = (16,), (16, 16)
        self.model = ClickModel(fields, rows, dim, 13, bottom, top).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.journal = Journal(AreaUnderCurve())
        self.log = getattr(self.journal, log)
        gen = torch.Generator().manual_seed(2)
        self.pool = []
        for _ in range(8):
            numbers = torch.rand(self.batch, 13, generator=gen)
            ids = torch.randint(0, rows, (self.batch, fields), generator=gen)
            clicks = (torch.rand(self.batch, generator=gen) < 0.2).long()
            if device == "cuda":
                numbers, ids, clicks = numbers.pin_memory(), ids.pin_memory(), clicks.pin_memory()
            self.pool.append((numbers, ids, clicks))

    def step(self, i):
        numbers, ids, clicks = (t.to(self.device, non_blocking=True) for t in self.pool[i % len(self.pool)])
        with torch.autocast(self.device, dtype=torch.bfloat16):
            logits = self.model(numbers, ids)
        logits = logits.float()
        loss = F.binary_cross_entropy_with_logits(logits, clicks.float())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.log(i, loss.detach(), logits.detach().sigmoid(), clicks)


def main():
    args = parse_args(["slow", "fixed"], 650)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    log = {"slow": "every_batch", "fixed": "every_report"}[args.variant]
    run_loop(args, Trainer(args.device, log).step, warmup=8)


if __name__ == "__main__":
    main()
