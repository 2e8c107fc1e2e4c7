"""Counting pedestrians from detector boxes: scenes of many objects come from loader workers."""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Scenes(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        n = int(rng.integers(4, 11))
        boxes = rng.random((n, 4), dtype=np.float32)
        kinds = rng.integers(0, 12, n)
        looks = rng.random((n, 32), dtype=np.float32)
        return boxes, kinds, looks, np.float32((kinds == 3).sum())


def by_object(samples):
    objects = [
        [
            {
                "box": torch.from_numpy(boxes[j].copy()),
                "kind": torch.tensor(kinds[j]),
                "look": torch.from_numpy(looks[j].copy()),
            }
            for j in range(len(kinds))
        ]
        for boxes, kinds, looks, _ in samples
    ]
    return objects, torch.tensor([s[3] for s in samples])


def packed(samples):
    boxes = torch.from_numpy(np.concatenate([s[0] for s in samples]))
    kinds = torch.from_numpy(np.concatenate([s[1] for s in samples]))
    looks = torch.from_numpy(np.concatenate([s[2] for s in samples]))
    scene = torch.from_numpy(np.repeat(np.arange(len(samples)), [len(s[1]) for s in samples]))
    return (boxes, kinds, looks, scene), torch.tensor([s[3] for s in samples])


def unpack(objects):
    flat = [o for scene in objects for o in scene]
    scene = torch.tensor([i for i, group in enumerate(objects) for _ in group])
    return (
        torch.stack([o["box"] for o in flat]),
        torch.stack([o["kind"] for o in flat]),
        torch.stack([o["look"] for o in flat]),
        scene,
    )


class Counter(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.kind = nn.Embedding(12, 16)
        self.body = nn.Sequential(
            nn.Linear(52, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, boxes, kinds, looks, scene, scenes):
        x = torch.cat([boxes, self.kind(kinds), looks], dim=1)
        each = F.softplus(self.body(x)).squeeze(1)
        return torch.zeros(scenes, device=each.device).index_add(0, scene, each)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--steps", type=int, default=200)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    batch = 12
    loader = DataLoader(
        Scenes(args.steps * batch),
        batch_size=batch,
        num_workers=2,
        collate_fn=by_object if args.variant == "slow" else packed,
        persistent_workers=True,
    )
    model = Counter().to(args.device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    marks = []
    for step, (objects, counts) in enumerate(loader):
        parts = unpack(objects) if args.variant == "slow" else objects
        parts = [p.to(args.device) for p in parts]
        guess = model(*parts, len(counts))
        loss = F.poisson_nll_loss(guess, counts.to(args.device), log_input=False)
        opt.zero_grad()
        loss.backward()
        opt.step()
        marks.append(time.perf_counter())
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)

    times = [b - a for a, b in zip(marks, marks[1:])]
    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
