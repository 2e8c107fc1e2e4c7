"""Forecasting river levels hour by hour with a recurrent encoder and decoder."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=100)
args = parser.parse_args()

GAUGES, WIDTH, PAST, AHEAD, BATCH = 12, 64, 48, 240, 48


class Decoder(nn.Module):
    """One hour at a time; each hour sees the state and a summary of the past."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(GAUGES + WIDTH, WIDTH)
        self.level = nn.Linear(WIDTH, GAUGES)

    def forward(self, level, state, summary):
        state = self.cell(torch.cat([level, summary], 1), state)
        return self.level(state), state


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(GAUGES, WIDTH, batch_first=True)
        self.decoder = Decoder()
        self.smooth = nn.Conv1d(WIDTH, GAUGES, 5, padding=2)

    def roll_out(self, level, state, summary):
        states = torch.empty(len(level), 0, WIDTH, device=level.device)
        for _ in range(AHEAD):
            level, state = self.decoder(level, state, summary)
            states = torch.cat([states, state.unsqueeze(1)], dim=1)
        return states

    def roll_out_list(self, level, state, summary):
        states = []
        for _ in range(AHEAD):
            level, state = self.decoder(level, state, summary)
            states.append(state)
        return torch.stack(states, dim=1)

    def forward(self, past):
        seen, last = self.encoder(past)
        roll = self.roll_out if args.variant == "slow" else self.roll_out_list
        states = roll(past[:, -1], last[0], seen.mean(1))
        return self.smooth(states.transpose(1, 2)).transpose(1, 2)


class Rivers:
    """Levels as sums of slow waves, one phase for each gauge."""

    def __init__(self, hours=20_000):
        time_axis = torch.arange(hours, dtype=torch.float32)[:, None]
        speed = torch.linspace(0.01, 0.06, GAUGES)
        self.levels = torch.sin(time_axis * speed) + 0.05 * torch.randn(hours, GAUGES)

    def batch(self):
        start = torch.randint(len(self.levels) - PAST - AHEAD, (BATCH, 1))
        window = self.levels[start + torch.arange(PAST + AHEAD)]
        return window[:, :PAST], window[:, PAST:]


def main():
    torch.manual_seed(0)
    rivers, model = Rivers(), Forecaster().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ends = []
    for step in range(args.steps):
        past, ahead = (part.to(args.device) for part in rivers.batch())
        loss = F.mse_loss(model(past), ahead)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        ends.append(time.perf_counter())
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    half = ends[len(ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
