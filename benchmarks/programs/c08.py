"""Speech enhancement with a spectral loss."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


def mel_bank(n_fft, bands, kind):
    f = np.linspace(0, 1, n_fft // 2 + 1)
    c = np.linspace(0, 1, bands + 2) ** 2
    up = (f[None] - c[:-2, None]) / (c[1:-1] - c[:-2])[:, None]
    down = (c[2:, None] - f[None]) / (c[2:] - c[1:-1])[:, None]
    return np.clip(np.minimum(up, down), 0, None).astype(kind)


class SpectralLoss(nn.Module):
    def __init__(self, sizes, bands, kind):
        super().__init__()
        self.sizes = sizes
        for n in sizes:
            self.register_buffer(f"win{n}", torch.from_numpy(np.hanning(n).astype(kind)))
            self.register_buffer(f"mel{n}", torch.from_numpy(mel_bank(n, bands, kind)))

    def spec(self, x, n):
        win, mel = getattr(self, f"win{n}"), getattr(self, f"mel{n}")
        frames = F.pad(x, (n // 2, n // 2)).unfold(-1, n, n // 4)
        power = torch.fft.rfft(frames * win).abs().square()
        return power, (power @ mel.t() + 1e-6).log()

    def forward(self, x, y):
        total = 0
        for n in self.sizes:
            (px, mx), (py, my) = self.spec(x, n), self.spec(y, n)
            total = total + ((px + 1e-9).sqrt() - (py + 1e-9).sqrt()).abs().mean() + (mx - my).abs().mean()
        return total


class Enhancer(nn.Module):
    def __init__(self, w, layers):
        super().__init__()
        self.inp = nn.Conv1d(1, w, 16, 8, 4)
        self.body = nn.ModuleList(nn.Conv1d(w, w, 5, padding=2) for _ in range(layers))
        self.out = nn.ConvTranspose1d(w, 1, 16, 8, 4)

    def forward(self, x):
        h = self.inp(x[:, None])
        for c in self.body:
            h = h + F.relu(c(h))
        return self.out(h)[:, 0]


def build(ctx):
    torch.set_float32_matmul_precision("high")
    n, t = ctx.pick((64, 131072), (2, 2048))
    sizes = ctx.pick((512, 1024, 2048), (64, 128))
    net = Enhancer(ctx.pick(256, 8), ctx.pick(2, 1)).to(ctx.device)
    criterion = SpectralLoss(sizes, ctx.pick(80, 8), np.float64 if ctx.slow else np.float32).to(ctx.device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    clean = torch.randn(4, n, t, device=ctx.device)

    def train_step(i):
        y = clean[i % 4]
        x = y + 0.1 * torch.randn_like(y)
        with torch.autocast(ctx.device.type, torch.bfloat16, enabled=ctx.cuda):
            z = net(x)
        criterion(z.float(), y).backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6))
