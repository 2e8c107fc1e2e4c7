"""Keyword spotting: log-mel features and a small convolutional net."""

import math
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
SAMPLE_RATE = 16_000


def hz_to_mel(f):
    return 2595.0 * math.log10(1.0 + f / 700.0)


def mel_to_hz(m):
    return 700.0 * (10 ** (m / 2595.0) - 1.0)


def mel_filters(n_mels=64, n_fft=512):
    lo, hi = hz_to_mel(20), hz_to_mel(SAMPLE_RATE / 2)
    points = [mel_to_hz(lo + (hi - lo) * i / (n_mels + 1)) for i in range(n_mels + 2)]
    bank = np.zeros((n_mels, n_fft // 2 + 1), dtype=np.float32)
    for m in range(n_mels):
        left, center, right = points[m : m + 3]
        for k in range(n_fft // 2 + 1):
            f = k * SAMPLE_RATE / n_fft
            up = (f - left) / (center - left)
            down = (right - f) / (right - center)
            bank[m, k] = max(0.0, min(up, down))
    return torch.from_numpy(bank)


class SpeechCommands(Dataset):
    def __init__(self, n=4000, classes=12):
        self.rng = np.random.default_rng(0)
        self.waves = self.rng.standard_normal((200, SAMPLE_RATE)).astype(np.float32)
        self.labels = self.rng.integers(0, classes, n)
        self.window = torch.hann_window(512)

    def __len__(self):
        return len(self.labels)

    def log_mel(self, wave):
        spec = (
            torch.stft(wave, 512, hop_length=160, window=self.window, return_complex=True)
            .abs()
            .pow(2)
        )
        return (mel_filters() @ spec + 1e-6).log()

    def __getitem__(self, i):
        wave = torch.from_numpy(self.waves[i % len(self.waves)])
        shift = int(torch.randint(-1600, 1600, ()))
        wave = torch.roll(wave, shift) * 0.9
        return self.log_mel(wave), int(self.labels[i])


class KWSNet(nn.Module):
    def __init__(self, classes=12, width=48):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.conv3 = nn.Conv2d(width, width * 2, 3, stride=2, padding=1)
        self.fc = nn.Linear(width * 2, classes)

    def forward(self, x):
        x = F.relu(self.conv1(x.unsqueeze(1)))
        x = F.relu(self.conv2(x))
        x = F.relu(self.conv3(x))
        return self.fc(x.mean((2, 3)))


def train(steps=100):
    torch.manual_seed(0)
    loader = DataLoader(SpeechCommands(), batch_size=16, shuffle=True, num_workers=0)
    model = KWSNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    times = []
    t0 = last = time.perf_counter()
    for step, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step + 1 == steps:
            break
    print(
        f"median step {statistics.median(times) * 1e3:.2f} ms  total {time.perf_counter() - t0:.2f} s"
    )


if __name__ == "__main__":
    train()
