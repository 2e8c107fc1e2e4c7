"""Evaluation of a pose network: mean pixel error of the joints found in its score maps."""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
JOINTS, HEIGHT, WIDE, BATCH, WIDTH = (17, 256, 192, 64, 64) if GPU else (5, 32, 24, 2, 8)


class PoseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.body = nn.ModuleList([nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(4)])
        self.maps = nn.Conv2d(WIDTH, JOINTS, 1)

    def forward(self, x):
        h = F.relu(self.stem(x))
        for conv in self.body:
            h = h + F.relu(conv(h))
        return F.interpolate(self.maps(h), size=(HEIGHT, WIDE), mode="bilinear", align_corners=False)


class JointFinder:
    """Joint coordinates (x, y) and confidence from score maps."""

    def __call__(self, maps):
        flat = maps.float().cpu().numpy().reshape(maps.shape[0], JOINTS, -1)
        place = flat.argmax(-1)
        score = flat.max(-1)
        return np.stack([place % WIDE, place // WIDE], -1), score


class DirectJointFinder(JointFinder):
    def __call__(self, maps):
        score, place = maps.float().flatten(2).max(-1)
        place, score = place.cpu().numpy(), score.cpu().numpy()
        return np.stack([place % WIDE, place // WIDE], -1), score


class PoseError:
    def __init__(self):
        self.sums, self.counts = np.zeros(JOINTS), np.zeros(JOINTS)
        self.confidence = []

    def update(self, found, score, truth):
        distance = np.linalg.norm(found - truth, axis=-1)
        self.sums += distance.sum(0)
        self.counts += len(distance)
        self.confidence.append(float(score.mean()))

    def summary(self):
        return float((self.sums / self.counts).mean()), float(np.mean(self.confidence))


def photographs(count):
    """A few batches of images, on the device, with joint coordinates on the host."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        images = torch.rand(BATCH, 3, HEIGHT, WIDE, device=args.device)
        joints = rng.random((BATCH, JOINTS, 2)) * [WIDE, HEIGHT]
        yield images, joints


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = PoseNet().to(args.device).to(memory_format=torch.channels_last).eval()
    finder = JointFinder() if args.variant == "slow" else DirectJointFinder()
    metric = PoseError()
    shelf = list(photographs(4))
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        images, truth = shelf[step % len(shelf)]
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=GPU):
            maps = model(images.contiguous(memory_format=torch.channels_last))
        found, score = finder(maps.contiguous())
        metric.update(found, score, truth)
        if step % 20 == 0:
            error, sure = metric.summary()
            print(f"batch {step} error {error:.2f} px confidence {sure:.4f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    error, _ = metric.summary()
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={error:.5f}")


main()
