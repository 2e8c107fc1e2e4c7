"""Fine-tunes a small bidirectional encoder on a corpus of reports, two ranks with DistributedDataParallel."""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 1500


@dataclass
class Settings:
    width: int = 192
    heads: int = 4
    layers: int = 2
    labels: int = 12
    batch: int = 16
    documents: int = 4096
    longest: int = 256


class Reports(Dataset):
    """Documents as the preprocessing job left them, shortest first, so that its own passes needed little padding."""

    def __init__(self, settings: Settings) -> None:
        rng = np.random.default_rng(11)
        lengths = np.clip(
            rng.lognormal(3.8, 0.7, settings.documents).astype(int), 12, settings.longest
        )
        self.lengths = np.sort(lengths)
        self.seeds = rng.integers(0, 1 << 30, settings.documents)
        self.labels = rng.integers(0, settings.labels, settings.documents)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        rng = np.random.default_rng(self.seeds[index])
        tokens = rng.integers(4, VOCABULARY, self.lengths[index])
        return torch.from_numpy(tokens), int(self.labels[index])


def shard(count: int, rank: int, world: int, variant: str) -> list[int]:
    """The documents of this rank."""
    each = count // world
    if variant == "slow":
        mine = list(range(rank * each, (rank + 1) * each))
    else:
        mine = list(range(rank, each * world, world))
    return mine


class ShardSampler(torch.utils.data.Sampler):
    def __init__(self, indices: list[int], batch: int, seed: int) -> None:
        self.indices, self.batch, self.seed = indices, batch, seed

    def __iter__(self):
        order = np.random.default_rng(self.seed)
        starts = np.arange(0, len(self.indices) - self.batch + 1, self.batch)
        order.shuffle(starts)
        for start in starts:
            yield self.indices[start : start + self.batch]

    def __len__(self) -> int:
        return len(self.indices) // self.batch


def collate(rows):
    longest = max(len(tokens) for tokens, _ in rows)
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    for row, (document, _) in enumerate(rows):
        tokens[row, : len(document)] = document
    return tokens, tokens.eq(0), torch.tensor([label for _, label in rows])


class Encoder(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, settings.width)
        self.position = nn.Embedding(settings.longest, settings.width)
        layer = nn.TransformerEncoderLayer(
            settings.width,
            settings.heads,
            4 * settings.width,
            dropout=0.0,
            batch_first=True,
            norm_first=True,
        )
        self.blocks = nn.TransformerEncoder(layer, settings.layers, enable_nested_tensor=False)
        self.head = nn.Linear(settings.width, settings.labels)

    def forward(self, tokens: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens) + self.position(places)
        x = self.blocks(x, src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1).to(x.dtype)
        return self.head((x * kept).sum(1) / kept.sum(1))


def train(settings: Settings, variant: str, steps: int) -> dict:
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    model = DistributedDataParallel(Encoder(settings))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    corpus = Reports(settings)
    sampler = ShardSampler(shard(len(corpus), rank, world, variant), settings.batch, seed=23)
    loader = DataLoader(corpus, batch_sampler=sampler, collate_fn=collate)
    batches = iter(loader)
    began, total = 0.0, 0.0
    for step in range(steps):
        if step == 5:
            dist.barrier()
            began = time.perf_counter()
        try:
            tokens, padding, labels = next(batches)
        except StopIteration:
            batches = iter(loader)
            tokens, padding, labels = next(batches)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(tokens, padding), labels)
        loss.backward()
        optimizer.step()
        total += float(loss.detach())
    dist.barrier()
    return {"ms_per_step": 1e3 * (time.perf_counter() - began) / (steps - 5), "loss": total / steps}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    result = train(Settings(), arguments.variant, arguments.steps)
    if dist.get_rank() == 0:
        name = os.path.basename(__file__)[:-3]
        print(
            json.dumps(
                {"case": name, "variant": arguments.variant, "steps": arguments.steps, **result}
            ),
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
