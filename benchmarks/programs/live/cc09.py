"""Wide tabular regression from a Parquet file that is larger than one would like to hold decoded."""

import argparse
import json
import os
import tempfile
import time
from collections import OrderedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

GROUPS, PER_GROUP, NUMERIC, CATS = 16, 20000, 56, 6


def write_table(path, seed=6):
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal(NUMERIC)
    writer = None
    for _ in range(GROUPS):
        x = rng.standard_normal((PER_GROUP, NUMERIC)).astype(np.float32).round(2)
        columns = {f"x{i}": x[:, i] for i in range(NUMERIC)}
        for c in range(CATS):
            columns[f"c{c}"] = pa.array([f"v{v}" for v in rng.integers(0, 40 * (c + 1), PER_GROUP)])
        columns["y"] = (np.tanh(x @ weights * 0.1) + 0.1 * rng.standard_normal(PER_GROUP)).astype(
            np.float32
        )
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=PER_GROUP)
    writer.close()


class Block:
    """One decoded row group."""

    def __init__(self, table, codes):
        numeric = [table.column(f"x{i}").to_numpy() for i in range(NUMERIC)]
        self.x = torch.from_numpy(np.stack(numeric, axis=1))
        cats = [[codes(c, v) for v in table.column(f"c{c}").to_pylist()] for c in range(CATS)]
        self.c = torch.tensor(cats).T
        self.y = torch.from_numpy(table.column("y").to_numpy().copy())

    def rows(self, which):
        return self.x[which], self.c[which], self.y[which]


class TableReader:
    def __init__(self, path, keep):
        self.file, self.keep, self.blocks = pq.ParquetFile(path), keep, OrderedDict()
        self.index = [dict() for _ in range(CATS)]

    def code(self, column, value):
        known = self.index[column]
        return known.setdefault(value, len(known))

    def block(self, group):
        if group in self.blocks:
            self.blocks.move_to_end(group)
            return self.blocks[group]
        block = Block(self.file.read_row_group(group, use_threads=False), self.code)
        self.blocks[group] = block
        if len(self.blocks) > self.keep:
            self.blocks.popitem(last=False)
        return block


def plan_epoch(rng, batch, within):
    """A list of (row group, rows of it), in the order in which they are trained on."""
    plan = []
    for group in rng.permutation(GROUPS):
        order = rng.permutation(PER_GROUP)
        plan += [
            (int(group), torch.from_numpy(order[i : i + batch]))
            for i in range(0, PER_GROUP - batch + 1, batch)
        ]
    if within:
        return plan
    return [plan[i] for i in rng.permutation(len(plan))]


class Net(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(40 * (c + 1), 8) for c in range(CATS))
        self.inp = nn.Linear(NUMERIC + 8 * CATS, width)
        self.body = nn.Sequential(
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 1),
        )

    def forward(self, x, c):
        emb = [t(c[:, i]) for i, t in enumerate(self.tables)]
        return self.body(self.inp(torch.cat([x, *emb], dim=1))).squeeze(1)


def train(reader, args):
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    times, losses, plan, began = [], [], [], time.perf_counter()
    for step in range(args.steps):
        t0 = time.perf_counter()
        if not plan:
            plan = plan_epoch(rng, args.batch, args.variant != "slow")
        group, rows = plan.pop(0)
        x, c, y = reader.block(group).rows(rows)
        loss = nn.functional.mse_loss(model(x, c), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        if step >= 12:
            times.append(1e3 * (time.perf_counter() - t0))
        if step % 100 == 0:
            print(f"step {step} loss {losses[-1]:.4f}", flush=True)
        if time.perf_counter() - began > args.max_seconds:
            break
    return times, losses


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    ap.add_argument("--steps", type=int, default=1000)
    ap.add_argument("--max-seconds", type=float, default=60)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--keep", type=int, default=11)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory(prefix="table") as folder:
        path = os.path.join(folder, "rows.parquet")
        write_table(path)
        times, losses = train(TableReader(path, args.keep), args)
    print(
        json.dumps(
            {
                "variant": args.variant,
                "steps": len(times),
                "loss": round(float(np.mean(losses[-20:])), 4),
                "mean_ms": round(float(np.mean(times)), 3),
                "median_ms": round(float(np.median(times)), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
