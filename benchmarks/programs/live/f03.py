"""Self-supervised audio encoder: two speed-perturbed views of a clip, pulled together."""
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_f import Meter, parse, torch_sync

FACTORS = (0.9531, 1.0467)


def windowed_sinc(orig, new, device, zeros=6, rolloff=0.99):
    base = min(orig, new) * rolloff
    width = math.ceil(zeros * orig / base)
    idx = torch.arange(-width, width + orig, dtype=torch.float32, device=device)[None] / orig
    t = torch.arange(0, -new, -1, dtype=torch.float32, device=device)[:, None] / new + idx
    t = (t * base).clamp_(-zeros, zeros)
    window = torch.cos(t * math.pi / zeros / 2).square_()
    t = t * math.pi
    kernel = torch.where(t == 0, torch.ones_like(t), t.sin() / t)
    return kernel.mul_(window).mul_(base / orig), width


def resample(x, orig, new):
    g = math.gcd(orig, new)
    orig, new = orig // g, new // g
    kernel, width = windowed_sinc(orig, new, x.device)
    n = x.shape[-1]
    x = F.pad(x, (width, width + orig))
    frames = x.unfold(-1, kernel.shape[1], orig)
    y = torch.matmul(frames.reshape(-1, kernel.shape[1]), kernel.t())
    return y.view(frames.shape[0], -1)[:, : math.ceil(new * n / orig)]


class SpeedPerturb:
    def __init__(self, rate, grid, crop, seed=0):
        self.rate = rate
        self.grid = grid
        self.crop = crop
        self.rng = random.Random(seed)

    def target(self, factor):
        return int(self.rate * factor) // self.grid * self.grid

    def __call__(self, x):
        y = resample(x, self.rate, self.target(self.rng.choice(FACTORS)))
        start = self.rng.randrange(0, y.shape[-1] - self.crop)
        return y[:, start:start + self.crop]


class LogSpec(nn.Module):
    def __init__(self, n_fft, bands):
        super().__init__()
        self.n_fft = n_fft
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("bank", torch.rand(bands, n_fft // 2 + 1) / n_fft)

    def forward(self, x):
        s = torch.stft(x, self.n_fft, self.n_fft // 2, window=self.window, return_complex=True)
        return torch.log(torch.matmul(self.bank, s.abs().square()) + 1e-5)


class Encoder(nn.Module):
    def __init__(self, n_fft, bands, ch):
        super().__init__()
        self.spec = LogSpec(n_fft, bands)
        self.net = nn.Sequential(
            nn.Conv1d(bands, ch, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv1d(ch, ch, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv1d(ch, ch, 3, stride=2, padding=1), nn.ReLU())
        self.head = nn.Linear(ch, 128)

    def forward(self, x):
        with torch.no_grad():
            s = self.spec(x)
        return F.normalize(self.head(self.net(s).mean(-1)), dim=-1)


def train_step(model, opt, perturb, wave):
    with torch.no_grad():
        a, b = perturb(wave), perturb(wave)
    za, zb = model(a), model(b)
    logits = za @ zb.t() / 0.1
    loss = F.cross_entropy(logits, torch.arange(len(wave), device=wave.device))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss


def main():
    args = parse(["slow", "fixed"])
    torch.manual_seed(2)
    device = torch.device(args.device)
    rate, batch, seconds, n_fft, grid = (400, 2, 8, 32, 20) if args.tiny else (16000, 96, 8, 512, 100)
    if args.variant == "slow":
        grid = 1
    perturb = SpeedPerturb(rate, grid, crop=rate * 7)
    model = Encoder(n_fft, 80 if not args.tiny else 8, 192 if not args.tiny else 16).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    clips = torch.randn(4, batch, rate * seconds, device=device) * 0.1
    for i in range(3):
        train_step(model, opt, perturb, clips[i % 4])
    meter = Meter(torch_sync(device))
    for i in meter.loop(args.steps):
        loss = train_step(model, opt, perturb, clips[i % 4])
    print("last loss", round(loss.item(), 4))
    meter.report()


if __name__ == "__main__":
    main()
