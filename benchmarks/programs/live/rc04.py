"""Image classifier over a catalogue of annotated samples, data parallel."""
import argparse
import gc
import json
import random
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BATCH, CLASSES, SIDE = 24, 20, 24


class Sample:
    def __init__(self, rng, number):
        self.number = number
        self.label = rng.randrange(CLASSES)
        self.boxes = [[rng.random() for _ in range(4)] for _ in range(3)]
        self.tags = {"split": "train", "source": [number % 7]}


class Catalogue:
    def __init__(self, count, rank):
        rng = random.Random(rank)
        self.samples = [Sample(rng, i) for i in range(count)]
        self.rng = rng

    def batch(self):
        picked = self.rng.sample(self.samples, BATCH)
        images = torch.randn(BATCH, 3, SIDE, SIDE)
        for image, sample in zip(images, picked):
            for x0, y0, w, h in sample.boxes:
                left, top = int(x0 * SIDE * 0.6), int(y0 * SIDE * 0.6)
                image[:, top:top + 1 + int(h * 8), left:left + 1 + int(w * 8)] += sample.label / CLASSES
        return images, torch.tensor([s.label for s in picked])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.Conv2d(64, 96, 3, padding=1), nn.BatchNorm2d(96), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(96 * 16, CLASSES)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Housekeeping:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        gc.disable()

    def after(self, step):
        if step % self.world == self.rank:
            gc.collect()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--max-seconds", type=float, default=28.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = Catalogue(12000, rank)
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    keeper = Housekeeping(rank, world)
    if args.variant == "fixed":
        gc.freeze()
    times, total, step = [], args.steps, 0
    while step < total:
        begin = time.perf_counter()
        images, labels = data.batch()
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        keeper.after(step)
        step += 1
        times.append(time.perf_counter() - begin)
        if step == 15:
            plan = torch.tensor([args.max_seconds / statistics.mean(times[5:])])
            dist.broadcast(plan, 0)
            total = min(total, max(25, int(plan.item())))
    if rank == 0:
        used = times[15:] or times
        print(json.dumps({"mean_ms": 1e3 * statistics.mean(used), "median_ms": 1e3 * statistics.median(used),
                          "steps": len(times), "loss": loss.item()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
