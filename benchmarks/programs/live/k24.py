"""Training a recurrent forecaster on long tide series, one window after another."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

WIDTH, BATCH, WINDOW, WINDOWS, GAUGES, WARM = 128, 16, 24, 12, 8, 3
CARRY = args.variant == "slow"


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(GAUGES, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, GAUGES)

    def forward(self, x, hidden=None):
        seen, hidden = self.cell(x, hidden)
        return self.head(seen), hidden


class Tides:
    """Sums of a few periods with a phase for every harbour."""

    def __init__(self):
        self.period = torch.tensor([12.4, 12.0, 23.9, 25.8])

    def series(self):
        clock = torch.arange(WINDOW * WINDOWS + 1, dtype=torch.float32)
        phase = 6.28 * torch.rand(BATCH, GAUGES, 4, 1)
        height = 0.2 + torch.rand(BATCH, GAUGES, 4, 1)
        wave = height * torch.sin(6.28 * clock / self.period[:, None] + phase)
        level = wave.sum(2).transpose(1, 2)
        return (level + 0.05 * torch.randn_like(level)).to(args.device)


class Trainer:
    """One call of `step` learns from one window; weights move when a series ends."""

    def __init__(self):
        self.model, self.tides = Forecaster().to(args.device), Tides()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.losses = []
        self.open_series()

    def open_series(self):
        self.series, self.window, self.hidden = self.tides.series(), 0, None

    def close_series(self):
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.open_series()

    def learn(self, x, y):
        guess, hidden = self.model(x, self.hidden)
        loss = F.mse_loss(guess, y) / WINDOWS
        loss.backward(retain_graph=CARRY)
        self.hidden = hidden if CARRY else hidden.detach()
        return loss.item() * WINDOWS

    def step(self):
        begin = self.window * WINDOW
        part = self.series[:, begin : begin + WINDOW + 1]
        self.losses.append(self.learn(part[:, :-1], part[:, 1:]))
        self.window += 1
        if self.window == WINDOWS:
            self.close_series()


def main():
    torch.manual_seed(0)
    trainer = Trainer()
    start = begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        trainer.step()
        if step % 24 == 0:
            print(f"window {step} loss {sum(trainer.losses[-24:]) / 24:.4f}", flush=True)
        if step == WARM:
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
