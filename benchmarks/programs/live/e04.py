"""Click ranking model: categorical bags + wide dense tower, bf16 autocast."""
import argparse
import gc

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_e import MLP, StepTimes, base_parser


class ClickLog:
    """Stands in for the log reader: hands out numpy batches on request."""

    def __init__(self, fields, rows, dense, batch, seed=0):
        rng = np.random.default_rng(seed)
        self.batches = [
            (rng.integers(0, rows, (batch, fields)).astype(np.int64),
             rng.standard_normal((batch, dense)).astype(np.float32),
             rng.integers(0, 2, batch).astype(np.float32))
            for _ in range(4)]

    def __iter__(self):
        i = 0
        while True:
            yield self.batches[i % len(self.batches)]
            i += 1


class Ranker(nn.Module):
    def __init__(self, fields, rows, emb, dense, hidden):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, emb) for _ in range(fields))
        self.bottom = nn.Linear(dense, emb)
        self.top = MLP([emb * (fields + 1), hidden, hidden, hidden, 1])

    def forward(self, cats, dense):
        parts = [t(cats[:, i]) for i, t in enumerate(self.tables)]
        parts.append(self.bottom(dense))
        return self.top(torch.cat(parts, dim=1)).squeeze(1)


def train(args: argparse.Namespace):
    dev = torch.device(args.device)
    if args.tiny:
        fields, rows, emb, dense, hidden, batch = 3, 100, 8, 4, 32, 16
    else:
        fields, rows, emb, dense, hidden, batch = 6, 20_000, 64, 16, 8192, 24576
    steps = min(args.steps, 160)
    torch.manual_seed(0)
    with dev:
        model = Ranker(fields, rows, emb, dense, hidden)
    opt = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9, fused=dev.type == "cuda")
    log = ClickLog(fields, rows, dense, batch)
    history, best = [], float("inf")
    times = StepTimes(dev)
    warm = 1 if args.tiny else 5
    for step, (cats, xs, ys) in zip(range(steps + warm), log):
        if step == warm:
            times.begin()
        cats = torch.from_numpy(cats).to(dev)
        xs = torch.from_numpy(xs).to(dev)
        ys = torch.from_numpy(ys).to(dev)
        opt.zero_grad(set_to_none=True)
        with torch.autocast(dev.type, dtype=torch.bfloat16):
            logit = model(cats, xs)
        loss = F.binary_cross_entropy_with_logits(logit.float(), ys)
        loss.backward()
        opt.step()
        value = loss.item()
        history.append(value)
        best = min(best, value)
        if step % 50 == 49:
            gc.collect()
            print("step %d loss %.4f best %.4f mean10 %.4f"
                  % (step, value, best, sum(history[-10:]) / 10), flush=True)
        if step >= warm:
            times.tick()
    times.finish()


if __name__ == "__main__":
    train(base_parser(variants=("healthy",)).parse_args())
