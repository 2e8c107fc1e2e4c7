"""Denoising latents with a wide predictor, several requests in turn."""

import argparse
import collections
import json
import math
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--max-seconds", type=float, default=20)
args = parser.parse_args()

GPU = args.device.startswith("cuda")
TOKENS, WIDTH, HIDDEN, LAYERS = (12288, 8192, 16384, 8) if GPU else (32, 64, 128, 2)
PICTURES, REQUEST, WARM = 4, 20, 4
DTYPE = torch.bfloat16 if GPU else torch.float32


def sync():
    if GPU:
        torch.cuda.synchronize()


class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(F.relu(self.up(x), inplace=True))


class Predictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Linear(128, WIDTH)
        self.stages = nn.ModuleList(Stage() for _ in range(LAYERS))

    def forward(self, x, moment):
        x = x + self.shift(moment)
        for stage in self.stages:
            x = stage(x)
        return x


def embed_moment(value):
    angles = [value * math.exp(-9.0 * i / 64) for i in range(64)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles])


class Progress:
    """Shared with a thread that shows how far the requests are."""

    def __init__(self):
        self.lock, self.rows = threading.Lock(), collections.deque(maxlen=200)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.show, daemon=True)
        self.thread.start()

    def add(self, **row):
        with self.lock:
            self.rows.append(json.dumps(row))

    def show(self):
        while not self.done.wait(0.25):
            with self.lock:
                rows = [json.loads(row) for row in self.rows]
            self.level = sum(row["level"] for row in rows) / max(1, len(rows))


class Sampler:
    def __init__(self, model):
        self.model = model
        self.left = 0

    def step(self):
        if self.left == 0:
            noise = torch.randn(PICTURES, TOKENS // PICTURES, 64).to(args.device, DTYPE)
            self.latent = noise.repeat(1, 1, WIDTH // 64)
            self.left = REQUEST
        moment = embed_moment(self.left * 50.0).to(args.device).to(DTYPE)
        joined = torch.cat([self.latent[i : i + 1] for i in range(PICTURES)])
        guess = self.model(joined, moment)
        self.latent = self.latent - guess / REQUEST
        self.left -= 1
        levels = [self.latent[i, :64].float().std().item() for i in range(PICTURES)]
        return sum(levels) / PICTURES


@torch.no_grad()
def main():
    torch.manual_seed(0)
    with torch.device(args.device):
        model = Predictor().to(DTYPE).eval()
    sampler, progress = Sampler(model), Progress()
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        level = sampler.step()
        progress.add(step=step, level=level, left=sampler.left)
        if step % REQUEST == 0:
            print(f"request {step // REQUEST} level {level:.3f}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    progress.done.set()
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
