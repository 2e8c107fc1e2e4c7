"""Sleep-stage classifier on features that two worker processes compute from a long recording (CPU)."""

import argparse
import multiprocessing
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

SAMPLES, WINDOW, BATCH, BANDS, STAGES = 800_000, 4096, 24, 32, 5
BY_NUMBER = {}


class Recording:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        slow = np.sin(np.arange(SAMPLES, dtype=np.float32) * 0.01)
        self.signal = slow + rng.standard_normal(SAMPLES, dtype=np.float32)
        self.stages = rng.integers(0, STAGES, SAMPLES // WINDOW)
        self.taper = np.hanning(WINDOW).astype(np.float32)

    def bands(self, epoch):
        piece = self.signal[epoch * WINDOW : (epoch + 1) * WINDOW] * self.taper
        power = np.abs(np.fft.rfft(piece))[1:] ** 2
        return np.log1p(power.reshape(BANDS, -1).mean(1)).astype(np.float32)

    def __len__(self):
        return len(self.stages)


def bands_of(task):
    number, epoch = task
    return BY_NUMBER[number].bands(epoch)


class FeatureService:
    def __init__(self, recording):
        self.recording = recording
        BY_NUMBER[0] = recording
        self.pool = multiprocessing.get_context("fork").Pool(2)

    def compute(self, epochs):
        if args.variant == "slow":
            return np.stack(self.pool.map(self.recording.bands, epochs))
        return np.stack(self.pool.map(bands_of, [(0, e) for e in epochs]))

    def close(self):
        self.pool.close()
        self.pool.join()


def classifier():
    return nn.Sequential(
        nn.LayerNorm(BANDS),
        nn.Linear(BANDS, 128),
        nn.GELU(),
        nn.Linear(128, 128),
        nn.GELU(),
        nn.Linear(128, STAGES),
    )


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    recording = Recording(3)
    service = FeatureService(recording)
    rng = np.random.default_rng(1)
    model = classifier()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        epochs = rng.integers(0, len(recording), BATCH).tolist()
        x = torch.from_numpy(service.compute(epochs))
        y = torch.from_numpy(recording.stages[epochs])
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    service.close()
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss.item():.5f}")


if __name__ == "__main__":
    main()
