"""Image classifier trained from shards of packed frames on disk."""
import argparse
import json
import os
import statistics
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHARDS, PER_SHARD, SIDE, CLASSES = 8, 192, 32, 10


def pack(folder):
    rng = np.random.default_rng(0)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE]
    for s in range(SHARDS):
        label = rng.integers(0, CLASSES, PER_SHARD)
        wave = np.sin((label[:, None, None] + 1) * 0.2 * xx + rng.random((PER_SHARD, 1, 1)) * 6) * 60
        noise = rng.integers(0, 24, (PER_SHARD, 3, SIDE, SIDE))
        frames = np.clip(128 + wave[:, None] + yy * 0.5 + noise, 0, 255).astype(np.uint8)
        np.savez_compressed(os.path.join(folder, f"part-{s:03d}.npz"), frame=frames, label=label)


class Frames(Dataset):
    def __init__(self, folder, unpack):
        self.paths = sorted(os.path.join(folder, f) for f in os.listdir(folder))
        self.unpack = unpack
        self.parts = {}

    def __len__(self):
        return len(self.paths) * PER_SHARD

    def part(self, number):
        if number not in self.parts:
            archive = np.load(self.paths[number])
            self.parts[number] = dict(archive) if self.unpack else archive
        return self.parts[number]

    def __getitem__(self, index):
        number, row = divmod(index, PER_SHARD)
        part = self.part(number)
        frame = part["frame"][row]
        label = int(part["label"][row])
        if index % 2:
            frame = frame[:, :, ::-1]
        frame = torch.from_numpy(np.ascontiguousarray(frame)).float().div_(255.0)
        return frame.sub_(0.5), label


class Net(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        layers, prev = [], 3
        for w, stride in ((width, 1), (width, 2), (2 * width, 1), (2 * width, 2), (4 * width, 1)):
            layers += [nn.Conv2d(prev, w, 3, stride, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(inplace=True)]
            prev = w
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(prev, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=18)
    a = ap.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        pack(folder)
        data = Frames(folder, unpack=a.variant == "fixed")
        loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True, num_workers=2,
                            persistent_workers=True, prefetch_factor=4)
        net = Net().to(memory_format=torch.channels_last)
        opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
        times, done = [], False
        began = last = time.perf_counter()
        while not done:
            for x, y in loader:
                x = x.to(memory_format=torch.channels_last)
                loss = F.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                now = time.perf_counter()
                times.append(now - last)
                last = now
                done = len(times) >= a.steps or now - began > a.max_seconds
                if done:
                    break
        del loader
    t = times[8:] if len(times) > 16 else times
    print(json.dumps({"steps": len(times), "mean_step_ms": 1e3 * statistics.mean(t), "median_step_ms": 1e3 * statistics.median(t),
                      "loss": loss.item()}))


if __name__ == "__main__":
    main()
