"""Sea-ice maps: a reader thread cuts patches into a queue while a U-shaped network is trained."""

import argparse
import queue
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Reader(threading.Thread):
    """Cuts patches out of a large scene and keeps a few batches ready."""

    def __init__(self, batch, side, seed):
        super().__init__(daemon=True)
        rng = np.random.default_rng(seed)
        self.scene = rng.normal(size=(2, 1024, 1024)).astype(np.float32)
        self.rng, self.batch, self.side = rng, batch, side
        self.ready = queue.Queue(maxsize=4)
        self.lock = threading.Lock()
        self.cut = 0
        self.done = False

    def patch(self):
        y, x = self.rng.integers(0, 1024 - self.side, 2)
        piece = self.scene[:, y : y + self.side, x : x + self.side]
        if self.rng.random() < 0.5:
            piece = piece[:, :, ::-1]
        with self.lock:
            self.cut += 1
        return np.ascontiguousarray(piece)

    def run(self):
        while not self.done:
            patches = np.stack([self.patch() for _ in range(self.batch)])
            while not self.done:
                try:
                    self.ready.put(torch.from_numpy(patches), timeout=0.5)
                    break
                except queue.Full:
                    continue


def conv(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU())


class IceNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down, self.deep = conv(2, width), conv(width, 2 * width)
        self.up, self.last = conv(3 * width, width), nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.down(x)
        b = self.deep(F.max_pool2d(a, 2))
        b = F.interpolate(b, scale_factor=2.0)
        return self.last(self.up(torch.cat([a, b], dim=1)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["healthy"], default="healthy")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--steps", type=int, default=120)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    reader = Reader(batch=6, side=48, seed=1)
    reader.start()
    model = IceNet(24).to(args.device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    times = []
    for step in range(args.steps):
        start = time.perf_counter()
        patches = reader.ready.get().to(args.device)
        target = (patches.mean(dim=1, keepdim=True) > 0).float()
        loss = F.binary_cross_entropy_with_logits(model(patches), target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - start)
        print(f"step {step} loss {loss.item():.4f} cut {reader.cut}", flush=True)
    reader.done = True
    reader.join()

    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
