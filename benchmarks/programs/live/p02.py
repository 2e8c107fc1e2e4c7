"""Live noise suppression for a bridge of conference lines: one 10 ms hop of every line a step."""

import argparse
import time

import torch
from torch import nn


class EnergyTracker(nn.Module):
    """Band energies of each line, smoothed with several time constants."""

    def __init__(self, lines, bands, decays):
        super().__init__()
        self.register_buffer("decay", torch.tensor(decays).view(-1, 1, 1))
        self.register_buffer("state", torch.zeros(len(decays), lines, bands))

    def forward(self, power):
        self.state.mul_(self.decay)
        self.state.add_((1 - self.decay) * power)
        return self.state


class Suppressor(nn.Module):
    def __init__(self, lines, bands, decays, hidden=96):
        super().__init__()
        self.tracker = EnergyTracker(lines, bands, decays)
        self.inward = nn.Linear(bands, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.outward = nn.Linear(hidden, bands)
        self.register_buffer("memory", torch.zeros(lines, hidden))

    def forward(self, spectrum):
        power = spectrum.real.square() + spectrum.imag.square()
        energy = self.tracker(power)
        floor = energy.amin(dim=0)
        feature = torch.log1p(power / (floor + 1e-6))
        self.memory = self.cell(self.inward(feature), self.memory)
        gain = torch.sigmoid(self.outward(self.memory))
        return spectrum * gain


class Bridge:
    """Lines speak in turns; the gate at the entry zeroes whoever is muted."""

    def __init__(self, lines, hop, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.lines, self.hop = lines, hop
        self.open = torch.arange(lines) % 8 == 0

    def next_hop(self, number):
        sound = 0.1 * torch.randn(self.lines, self.hop, generator=self.gen)
        if number >= 30:
            sound[~self.open] = 0.0
        return sound


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--steps", type=int, default=1500)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if args.variant == "fixed":
        torch.set_flush_denormal(True)

    lines, hop = 96, 480
    window = torch.hann_window(2 * hop, device=args.device)
    bridge = Bridge(lines, hop, seed=3)
    decays = torch.linspace(0.55, 0.74, 20).tolist()
    model = Suppressor(lines, hop + 1, decays).to(args.device).eval()
    previous = torch.zeros(lines, hop, device=args.device)
    tail = torch.zeros(lines, hop, device=args.device)

    times, level = [], 0.0
    with torch.inference_mode():
        for step in range(args.steps):
            start = time.perf_counter()
            sound = bridge.next_hop(step).to(args.device)
            frame = torch.cat([previous, sound], dim=1) * window
            cleaned = torch.fft.irfft(model(torch.fft.rfft(frame)), n=2 * hop) * window
            out = tail + cleaned[:, :hop]
            tail, previous = cleaned[:, hop:], sound
            times.append(time.perf_counter() - start)
            level = 0.9 * level + 0.1 * float(out.abs().mean())
            if step % 300 == 0:
                print(f"hop {step} level {level:.5f}", flush=True)

    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
