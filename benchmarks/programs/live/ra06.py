"""Two ranks train a spectrogram model; decoded features lie in a cache on the shared disk of the node."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FRAMES, BANDS, WINDOW = 400, 64, 96


class FeatureCache:
    """Compressed spectrograms, one file for each clip, written by whichever rank comes first."""

    def __init__(self, folder: str, variant: str) -> None:
        self.folder, self.variant = folder, variant

    @contextlib.contextmanager
    def exclusive(self):
        with open(os.path.join(self.folder, "cache.lock"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def path(self, clip: int) -> str:
        return os.path.join(self.folder, f"{clip:05d}.z")

    def decode(self, clip: int) -> np.ndarray:
        rng = np.random.default_rng(clip)
        return rng.normal(size=(FRAMES, BANDS)).cumsum(0).astype(np.float32)

    def store(self, clip: int) -> None:
        packed = zlib.compress(self.decode(clip).tobytes(), 1)
        temporary = f"{self.path(clip)}.{os.getpid()}"
        with open(temporary, "wb") as file:
            file.write(packed)
        os.replace(temporary, self.path(clip))

    def load(self, clip: int) -> np.ndarray:
        with open(self.path(clip), "rb") as file:
            flat = np.frombuffer(zlib.decompress(file.read()), np.float32)
        features = flat.reshape(FRAMES, BANDS)
        features = (features - features.mean(0)) / (features.std(0) + 1e-5)
        start = clip * 7 % (FRAMES - WINDOW)
        return features[start : start + WINDOW]

    def fetch(self, clips: list[int]) -> torch.Tensor:
        if self.variant == "slow":
            with self.exclusive():
                for clip in clips:
                    if not os.path.exists(self.path(clip)):
                        self.store(clip)
                rows = [self.load(clip) for clip in clips]
        else:
            missing = [clip for clip in clips if not os.path.exists(self.path(clip))]
            if missing:
                with self.exclusive():
                    for clip in missing:
                        self.store(clip)
            rows = [self.load(clip) for clip in clips]
        return torch.from_numpy(np.stack(rows))


class Listener(nn.Module):
    def __init__(self, width: int = 96, classes: int = 30) -> None:
        super().__init__()
        self.enter = nn.Conv1d(BANDS, width, 5, 2, 2)
        self.blocks = nn.ModuleList([nn.Conv1d(width, width, 5, 1, 2) for _ in range(2)])
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.enter(x.transpose(1, 2)))
        for block in self.blocks:
            x = x + F.relu(block(x))
        return self.head(x.mean(2))


def shared_folder(rank: int) -> str:
    names = [tempfile.mkdtemp(prefix="features-") if rank == 0 else ""]
    dist.broadcast_object_list(names, 0)
    return names[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=260)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(9)
    cache = FeatureCache(shared_folder(rank), arguments.variant)
    clips = list(range(rank, 512, world))
    for clip in clips:
        cache.store(clip)
    dist.barrier()
    model = DistributedDataParallel(Listener())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    order = np.random.default_rng(rank)
    began = 0.0
    for step in range(arguments.steps):
        if step == 5:
            dist.barrier()
            began = time.perf_counter()
        chosen = order.choice(clips, 48, replace=False).tolist()
        features = cache.fetch(chosen)
        labels = torch.tensor([clip % 30 for clip in chosen])
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(features), labels)
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
