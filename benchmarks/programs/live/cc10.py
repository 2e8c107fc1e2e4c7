"""Gesture recognition from motion frames: convolutional frame encoder and a norm-preserving recurrent memory."""

import argparse
import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

FRAMES, POINTS, CLASSES = 24, 32, 10


class Gestures:
    def __init__(self, count, seed=8):
        rng = np.random.default_rng(seed)
        t = np.linspace(0, 1, FRAMES, dtype=np.float32)
        self.proto = rng.standard_normal((CLASSES, 4, 3, POINTS)).astype(np.float32)
        self.basis = np.stack([np.sin(2 * np.pi * (k + 1) * t) for k in range(4)], 1)
        self.rng, self.count = rng, count

    def batch(self, size):
        y = self.rng.integers(0, CLASSES, size)
        clean = np.einsum("tk,bkcp->btcp", self.basis, self.proto[y])
        noisy = clean + 1.5 * self.rng.standard_normal(clean.shape).astype(np.float32)
        return torch.from_numpy(noisy.astype(np.float32)), torch.from_numpy(y)


class FrameEncoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c1, self.c2 = nn.Conv1d(3, 24, 5, padding=2), nn.Conv1d(24, 32, 5, padding=2, stride=2)
        self.out = nn.Linear(32 * POINTS // 2, width)

    def forward(self, frames):
        b, t = frames.shape[:2]
        x = frames.flatten(0, 1)
        x = F.relu(self.c2(F.relu(self.c1(x))))
        return self.out(x.flatten(1)).view(b, t, -1)


class ModReLU(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.sign(x) * F.relu(x.abs() + self.bias)


class Memory(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.mix = parametrizations.orthogonal(
            nn.Linear(width, width, bias=False), orthogonal_map="cayley"
        )
        self.act = ModReLU(width)

    def forward(self, inputs):
        h = inputs.new_zeros(inputs.shape[0], self.width)
        for t in range(inputs.shape[1]):
            h = self.act(self.mix(h) + inputs[:, t])
        return h


class HoistedMemory(Memory):
    def forward(self, inputs):
        h = inputs.new_zeros(inputs.shape[0], self.width)
        weight = self.mix.weight
        for t in range(inputs.shape[1]):
            h = self.act(F.linear(h, weight) + inputs[:, t])
        return h


class Recogniser(nn.Module):
    def __init__(self, width, memory):
        super().__init__()
        self.encoder, self.memory = FrameEncoder(width), memory(width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, frames):
        return self.head(self.norm(self.memory(self.encoder(frames))))


def groups(model, lr):
    slow_names = ("memory.mix",)
    memory = [p for n, p in model.named_parameters() if n.startswith(slow_names)]
    rest = [p for n, p in model.named_parameters() if not n.startswith(slow_names)]
    return [{"params": memory, "lr": lr * 0.2}, {"params": rest, "lr": lr}]


@torch.no_grad()
def accuracy(model, data, rounds=2):
    model.eval()
    right = total = 0
    for _ in range(rounds):
        x, y = data.batch(64)
        right += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return right / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    ap.add_argument("--steps", type=int, default=260)
    ap.add_argument("--max-seconds", type=float, default=60)
    ap.add_argument("--width", type=int, default=192)
    ap.add_argument("--batch", type=int, default=48)
    args = ap.parse_args()
    torch.manual_seed(0)
    data = Gestures(4000)
    model = Recogniser(args.width, Memory if args.variant == "slow" else HoistedMemory)
    opt = torch.optim.RMSprop(groups(model, 1e-3))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)
    times, losses, began = [], [], time.perf_counter()
    for step in range(args.steps):
        t0 = time.perf_counter()
        x, y = data.batch(args.batch)
        loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        opt.step()
        schedule.step()
        losses.append(loss.item())
        if step >= 4:
            times.append(1e3 * (time.perf_counter() - t0))
        if step % 50 == 0:
            print(f"step {step} loss {losses[-1]:.3f}", flush=True)
        if time.perf_counter() - began > args.max_seconds:
            break
    print(
        json.dumps(
            {
                "variant": args.variant,
                "steps": len(times),
                "accuracy": round(accuracy(model, data), 3),
                "mean_ms": round(float(np.mean(times)), 3),
                "median_ms": round(float(np.median(times)), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
