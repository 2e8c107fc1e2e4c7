"""Evaluate an image tagger on a validation set: several metrics, a running report, hard examples."""
import argparse
import heapq
import json
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MetricCollection
from torchmetrics.classification import MultilabelAveragePrecision, MultilabelF1Score

TAGS = 80


class Photos(Dataset):
    def __init__(self, n, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.base = torch.rand(256, 3, 64, 64, generator=g)
        self.tags = (torch.rand(n, TAGS, generator=g) < 0.12).int()
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = self.base[i % 256]
        return (x - 0.5) / 0.25, self.tags[i], i


class PatchTagger(nn.Module):
    def __init__(self, dim=128, depth=3, heads=4, patch=8):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.pos = nn.Parameter(torch.randn(1, 64, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, TAGS)

    def forward(self, x):
        h = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.body(h).mean(1))


class HardExamples:
    """Keeps the photos with the highest loss."""

    def __init__(self, keep=50):
        self.keep, self.heap = keep, []

    def offer(self, losses, ids):
        for loss, i in zip(losses.tolist(), ids.tolist()):
            if len(self.heap) < self.keep:
                heapq.heappush(self.heap, (loss, i))
            elif loss > self.heap[0][0]:
                heapq.heapreplace(self.heap, (loss, i))

    def ids(self):
        return [i for _, i in sorted(self.heap, reverse=True)]


class Report:
    def __init__(self, every, stream=sys.stderr):
        self.every, self.stream = every, stream
        self.values = {}

    def show(self, batch, **values):
        self.values.update(values)
        if batch % self.every == 0:
            line = " ".join(f"{k}={v:.4f}" for k, v in self.values.items())
            print(f"[{batch:4d}] {line}", file=self.stream)


def build_metrics():
    return MetricCollection({
        "map": MultilabelAveragePrecision(TAGS, average="macro", thresholds=None),
        "f1": MultilabelF1Score(TAGS, threshold=0.5),
    })


@torch.inference_mode()
def evaluate(model, loader, args):
    metrics, hard, report = build_metrics(), HardExamples(), Report(args.report_every)
    times, total, seen = [], 0.0, 0
    begin = last = time.perf_counter()
    for batch, (x, tags, ids) in enumerate(loader, 1):
        logits = model(x)
        losses = F.binary_cross_entropy_with_logits(logits, tags.float(), reduction="none").mean(1)
        total += losses.sum().item()
        seen += len(x)
        metrics.update(logits.sigmoid(), tags)
        hard.offer(losses, ids)
        if args.variant == "slow":
            report.show(batch, loss=total / seen, **metrics.compute())
        elif batch % args.report_every == 0:
            report.show(batch, loss=total / seen, **metrics.compute())
        now = time.perf_counter()
        times.append((now - last) * 1e3)
        last = now
        if batch >= args.steps or now - begin > args.max_seconds:
            break
    final = {k: round(float(v), 4) for k, v in metrics.compute().items()}
    final["loss"] = round(total / seen, 5)
    return times, final, hard.ids()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    p.add_argument("--steps", type=int, default=70)
    p.add_argument("--max-seconds", type=float, default=120)
    p.add_argument("--batch", type=int, default=48)
    p.add_argument("--report-every", type=int, default=40)
    args = p.parse_args()
    torch.manual_seed(0)
    model = PatchTagger().eval()
    loader = DataLoader(Photos(args.batch * args.steps), batch_size=args.batch)
    times, final, hard = evaluate(model, loader, args)
    t = times[3:] or times
    print(json.dumps({"steps": len(times), "mean_ms": round(statistics.fmean(t), 3),
                      "median_ms": round(statistics.median(t), 3), **final, "hardest": hard[0]}))


if __name__ == "__main__":
    main()
