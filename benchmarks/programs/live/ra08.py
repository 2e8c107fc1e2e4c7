"""Distils a small vision transformer on two ranks with accumulation; rank 0 watches, saves and prints."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = 50


class Vision(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.places = nn.Parameter(torch.zeros(1, 64, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)
        self.register_buffer("mean", torch.full((3, 1, 1), 0.5))
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += len(images)
        x = self.patches(images - self.mean).flatten(2).transpose(1, 2) + self.places
        return self.head(self.blocks(x).mean(1))


class Watch:
    """Predictions of all ranks for a confusion table."""

    def __init__(self) -> None:
        self.table = torch.zeros(CLASSES, CLASSES, dtype=torch.long)

    @torch.no_grad()
    def add(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        mine = torch.stack([logits.argmax(1), labels])
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        for guesses, truth in everyone:
            self.table.index_put_((truth, guesses), torch.ones_like(truth), accumulate=True)


def distil(student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    soft = F.kl_div(
        student.log_softmax(1), teacher.log_softmax(1), reduction="batchmean", log_target=True
    )
    return 0.5 * soft + 0.5 * F.cross_entropy(student, labels)


def save(model: nn.Module, folder: str) -> None:
    temporary = os.path.join(folder, "last.tmp")
    torch.save(model.state_dict(), temporary)
    os.replace(temporary, os.path.join(folder, "last.pt"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["healthy"], default="healthy")
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(31)
    teacher = Vision(192, 4).eval().requires_grad_(False)
    student = DistributedDataParallel(Vision(192, 3))
    optimizer = torch.optim.AdamW(student.parameters(), lr=5e-4)
    folder = [tempfile.mkdtemp(prefix="distil-") if rank == 0 else ""]
    dist.broadcast_object_list(folder, 0)
    generator = torch.Generator().manual_seed(60 + rank)
    images = torch.rand(256, 3, 64, 64, generator=generator)
    labels = torch.randint(0, CLASSES, (256,), generator=generator)
    watch, micro = Watch(), 3
    began = 0.0
    for step in range(arguments.steps):
        if step == 5:
            dist.barrier()
            began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for part in range(micro):
            rows = torch.randint(0, len(labels), (8,), generator=generator)
            last = part == micro - 1
            with contextlib.nullcontext() if last else student.no_sync():
                with torch.no_grad():
                    target = teacher(images[rows])
                logits = student(images[rows])
                (distil(logits, target, labels[rows]) / micro).backward()
        watch.add(logits, labels[rows])
        optimizer.step()
        message = [{"step": step, "lr": optimizer.param_groups[0]["lr"]}]
        dist.broadcast_object_list(message, 0)
        if rank == 0 and step % 40 == 39:
            save(student.module, folder[0])
        if step % 10 == 9:
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
