"""Two ranks read shards that two export jobs wrote; a pooled text model learns from them."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LENGTH, VOCABULARY = 128, 1500


def export(folder: str, shards: int, rows: int, convert: bool) -> None:
    """The later half of the shards came from the newer exporter."""
    rng = np.random.default_rng(6)
    for shard in range(shards):
        tokens = rng.integers(1, VOCABULARY, (rows, LENGTH)).astype(np.int32)
        if shard < shards // 2 or convert:
            np.save(os.path.join(folder, f"shard-{shard:03d}.npy"), tokens)
        else:
            with gzip.open(
                os.path.join(folder, f"shard-{shard:03d}.jsonl.gz"), "wt", compresslevel=6
            ) as file:
                for row in tokens:
                    file.write(
                        json.dumps({"tokens": row.tolist(), "source": "web", "score": 0.5}) + "\n"
                    )


def read_array(path: str):
    yield from np.load(path, mmap_mode="r")


def read_lines(path: str):
    with gzip.open(path, "rt") as file:
        for line in file:
            yield np.asarray(json.loads(line)["tokens"], dtype=np.int32)


READERS = {".npy": read_array, ".gz": read_lines}


class Stream:
    def __init__(self, folder: str, rank: int, world: int) -> None:
        names = sorted(os.listdir(folder))
        each = len(names) // world
        self.paths = [os.path.join(folder, name) for name in names[rank * each : (rank + 1) * each]]

    def rows(self):
        while True:
            for path in self.paths:
                yield from READERS[os.path.splitext(path)[1]](path)

    def batches(self, size: int):
        rows = self.rows()
        while True:
            yield torch.from_numpy(np.stack([next(rows) for _ in range(size)])).long()


class Pooled(nn.Module):
    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.mix = nn.Conv1d(width, width, 3, padding=1)
        self.head = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, 40)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.mix(self.words(tokens).transpose(1, 2)))
        return self.head(x.amax(2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=250)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    folder = [tempfile.mkdtemp(prefix="shards-") if rank == 0 else ""]
    dist.broadcast_object_list(folder, 0)
    if rank == 0:
        export(folder[0], 8, 400, arguments.variant == "fixed")
    dist.barrier()
    model = DistributedDataParallel(Pooled())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    batches = Stream(folder[0], rank, world).batches(64)
    began = 0.0
    for step in range(arguments.steps):
        if step == 5:
            dist.barrier()
            began = time.perf_counter()
        tokens = next(batches)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(tokens), tokens[:, 0] % 40)
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 100 == 0:
            print(f"step {step} loss {float(loss.detach()):.3f}", flush=True)
    dist.barrier()
    took = 1e3 * (time.perf_counter() - began) / (arguments.steps - 5)
    if rank == 0:
        name = os.path.basename(__file__)[:-3]
        print(
            json.dumps(
                {
                    "case": name,
                    "variant": arguments.variant,
                    "steps": arguments.steps,
                    "ms_per_step": took,
                }
            ),
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
