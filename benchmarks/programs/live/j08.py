"""Training a keyword spotter on a small set of recordings with random shifts and gains."""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=240)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
CLIPS, SAMPLES, BATCH, WIDTH, WORKERS, WORDS = (384, 16000, 32, 192, 8, 12) if GPU else (12, 2000, 4, 8, 1, 3)


class Recordings(Dataset):
    def __init__(self):
        rng = np.random.default_rng(0)
        self.words = rng.integers(0, WORDS, CLIPS)
        clock = np.arange(SAMPLES) / 16000
        pitch = 200 + 150 * self.words[:, None] + rng.normal(0, 20, (CLIPS, 1))
        self.waves = np.sin(2 * np.pi * pitch * clock).astype(np.float32)

    def __len__(self):
        return CLIPS

    def __getitem__(self, index):
        shift = int(torch.randint(SAMPLES // 4, ()))
        gain = 0.5 + float(torch.rand(()))
        wave = np.roll(self.waves[index], shift) * np.float32(gain)
        return torch.from_numpy(wave), int(self.words[index])


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.inlet = nn.Conv1d(201, WIDTH, 1)
        self.body = nn.ModuleList([nn.Conv1d(WIDTH, WIDTH, 5, padding=2) for _ in range(6)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(WIDTH) for _ in range(6)])
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, wave):
        spectrum = torch.stft(wave, 400, 160, window=self.window, return_complex=True).abs()
        h = self.inlet(torch.log1p(spectrum))
        for conv, norm in zip(self.body, self.norms):
            h = h + F.relu(norm(conv(h)))
        return self.head(h.mean(-1))


def make_loader():
    return DataLoader(
        Recordings(),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=WORKERS,
        pin_memory=GPU,
        persistent_workers=args.variant != "slow",
    )


def train(model, loader):
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4)
    begin = time.perf_counter()
    step, epoch, running = 0, 0, 0.0
    while True:
        epoch += 1
        for wave, word in loader:
            wave = wave.to(args.device, non_blocking=True)
            word = word.to(args.device, non_blocking=True)
            loss = F.cross_entropy(model(wave), word)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            if step >= args.steps or time.perf_counter() - begin > args.max_seconds:
                last = loss.item()
                return step, time.perf_counter() - begin, last
        running = 0.8 * running + 0.2 * loss.item()
        print(f"epoch {epoch} loss {running:.4f}", flush=True)


def main():
    torch.manual_seed(0)
    loader = make_loader()
    model = Spotter().to(args.device)
    steps, took, last = train(model, loader)
    print(f"done steps={steps} ms_per_step={1e3 * took / steps:.2f} loss={last:.5f}")


if __name__ == "__main__":
    main()
