"""Trains a sequence tagger on two ranks and follows a micro-averaged F1 of the whole job while it runs."""

from __future__ import annotations

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TAGS = 18


class Tagger(nn.Module):
    def __init__(self, words: int = 5000, width: int = 48) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.mix = nn.ModuleList([nn.Conv1d(width, width, 5, padding=2) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.head = nn.Linear(width, TAGS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        for mix, norm in zip(self.mix, self.norms, strict=True):
            x = x + F.gelu(mix(norm(x).transpose(1, 2)).transpose(1, 2))
        return self.head(x)


class Scores:
    """Micro-averaged F1 over the sentences of all ranks."""

    def __init__(self, variant: str) -> None:
        self.variant = variant
        self.hits = self.guessed = self.wanted = 0

    def count(self, guesses: list[int], targets: list[int]) -> tuple[int, int, int]:
        hits = sum(g == t != 0 for g, t in zip(guesses, targets, strict=True))
        return hits, sum(g != 0 for g in guesses), sum(t != 0 for t in targets)

    def update(self, logits: torch.Tensor, tags: torch.Tensor, names: list[str]) -> float:
        guesses = logits.argmax(-1)
        if self.variant == "slow":
            mine = [
                {
                    "sentence": name,
                    "guesses": row.tolist(),
                    "tags": tag.tolist(),
                    "scores": score.tolist(),
                }
                for name, row, tag, score in zip(
                    names, guesses, tags, logits.softmax(-1), strict=True
                )
            ]
            everyone: list = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, mine)
            for rows in everyone:
                for row in rows:
                    hits, guessed, wanted = self.count(row["guesses"], row["tags"])
                    self.hits, self.guessed, self.wanted = (
                        self.hits + hits,
                        self.guessed + guessed,
                        self.wanted + wanted,
                    )
        else:
            right = (guesses == tags) & (tags != 0)
            counts = torch.stack([right.sum(), (guesses != 0).sum(), (tags != 0).sum()])
            dist.all_reduce(counts)
            hits, guessed, wanted = counts.tolist()
            self.hits, self.guessed, self.wanted = (
                self.hits + hits,
                self.guessed + guessed,
                self.wanted + wanted,
            )
        return 2 * self.hits / max(1, self.guessed + self.wanted)


class Sentences:
    def __init__(self, count: int, length: int, rank: int) -> None:
        generator = torch.Generator().manual_seed(900 + rank)
        self.tokens = torch.randint(1, 5000, (count, length), generator=generator)
        self.tags = self.tokens % TAGS
        self.names = [f"doc-{rank}-{place:06d}" for place in range(count)]

    def batch(self, step: int, size: int):
        start = step * size % (len(self.names) - size)
        part = slice(start, start + size)
        return self.tokens[part], self.tags[part], self.names[part]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=220)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DistributedDataParallel(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sentences = Sentences(8192, 64, rank)
    scores = Scores(arguments.variant)
    began, f1 = 0.0, 0.0
    for step in range(arguments.steps):
        if step == 5:
            dist.barrier()
            began = time.perf_counter()
        tokens, tags, names = sentences.batch(step, 64)
        optimizer.zero_grad(set_to_none=True)
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten())
        loss.backward()
        optimizer.step()
        f1 = scores.update(logits.detach(), tags, names)
        if rank == 0 and step % 50 == 0:
            print(f"step {step} loss {float(loss.detach()):.3f} f1 {f1:.3f}", flush=True)
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
