"""Training an autoencoder on vibration spectra of fading bands heard through an echoing room."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

LENGTH, BATCH, BANDS, WIDTH, ECHOES = 2048, 16, 8, 32, 64

class FadingFilters:
    """Rings of a tapped structure, every band with its own decay, and the echoes of the room."""

    def __init__(self):
        clock = torch.arange(LENGTH, dtype=torch.float32)
        rates = torch.linspace(0.002, 0.006, BANDS)
        self.fade = torch.exp(-rates[:, None] * clock)
        self.pitch = torch.linspace(0.02, 0.4, BANDS)[:, None] * clock
        self.echo = torch.exp(-torch.arange(ECHOES) / 20.0) * torch.randn(ECHOES)

    def room(self, wave):
        heard = torch.zeros_like(wave)
        for delay, weight in enumerate(self.echo.tolist()):
            heard = heard + weight * wave.roll(delay, -1)
        return heard

    def strike(self):
        strength = 0.5 + torch.rand(BATCH, BANDS, 1)
        phase = 6.28 * torch.rand(BATCH, BANDS, 1)
        return self.room(strength * self.fade * torch.cos(self.pitch + phase))


class SpectralFilters(FadingFilters):
    def room(self, wave):
        response = torch.fft.rfft(self.echo, LENGTH)
        return torch.fft.irfft(torch.fft.rfft(wave) * response, LENGTH)


class Compressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.pack = nn.Sequential(nn.Linear(128 * BANDS, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 8))
        self.unpack = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 128 * BANDS))

    def forward(self, x):
        return self.unpack(self.pack(x))


def main():
    torch.manual_seed(0)
    filters = FadingFilters() if args.variant == "slow" else SpectralFilters()
    model = Compressor().to(args.device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        wave = filters.strike().to(args.device)
        x = wave.unflatten(-1, (128, LENGTH // 128)).sum(-1).flatten(1)
        loss = F.mse_loss(model(x), x)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss.item():.6f}")


main()
