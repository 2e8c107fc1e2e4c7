"""Audio-event classification with a stack of global convolutions (state-space style)."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def transform_length(signal, variant):
    full = 2 * signal - 1
    if variant == "slow":
        return full
    return 1 << (full - 1).bit_length()


class DecayKernel(nn.Module):
    """Length-L impulse responses, one per channel, from a few damped oscillators."""

    def __init__(self, channels, length, modes=8):
        super().__init__()
        self.log_decay = nn.Parameter(torch.rand(channels, modes) * 3 - 7)
        self.freq = nn.Parameter(torch.rand(channels, modes) * 0.5)
        self.mix = nn.Parameter(torch.randn(channels, modes) / modes)
        self.register_buffer("t", torch.arange(length, dtype=torch.float32))

    def forward(self):
        damp = torch.exp(-self.log_decay.exp().unsqueeze(-1) * self.t)
        osc = torch.cos(self.freq.unsqueeze(-1) * self.t)
        return torch.einsum("cm,cml->cl", self.mix, damp * osc)


class GlobalConv(nn.Module):
    def __init__(self, channels, length, variant):
        super().__init__()
        self.kernel = DecayKernel(channels, length)
        self.skip = nn.Parameter(torch.ones(channels, 1))
        self.n = transform_length(length, variant)

    def forward(self, u):
        length = u.shape[-1]
        uf = torch.fft.rfft(u, n=self.n)
        kf = torch.fft.rfft(self.kernel(), n=self.n)
        y = torch.fft.irfft(uf * kf, n=self.n)[..., :length]
        return y + self.skip * u


class Stage(nn.Module):
    def __init__(self, channels, length, variant):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.conv = GlobalConv(channels, length, variant)
        self.mix = nn.Conv1d(channels, 2 * channels, 1)

    def forward(self, x):
        y = F.gelu(self.conv(self.norm(x)))
        return x + F.glu(self.mix(y), dim=1)


class Tagger(nn.Module):
    def __init__(self, channels, length, depth, classes, variant):
        super().__init__()
        self.stem = nn.Conv1d(1, channels, 1)
        self.stages = nn.Sequential(*[Stage(channels, length, variant) for _ in range(depth)])
        self.out = nn.Linear(channels, classes)

    def forward(self, wave):
        return self.out(self.stages(self.stem(wave)).mean(-1))


def make_batches(batch, length, classes, device):
    g = torch.Generator(device=device).manual_seed(11)
    t = torch.arange(length, device=device) / length
    while True:
        y = torch.randint(0, classes, (batch,), generator=g, device=device)
        phase = torch.rand(batch, 1, generator=g, device=device) * 6.28
        wave = torch.sin(6.28 * (20 + 35 * y[:, None]) * t + phase)
        wave = wave + 0.3 * torch.randn(batch, length, generator=g, device=device)
        yield wave.unsqueeze(1), y


def run():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--max-seconds", type=float, default=36)
    args = ap.parse_args()
    torch.manual_seed(0)
    gpu = args.device == "cuda"
    # one second of audio at 8 kHz
    channels, length, depth, batch = (512, 8000, 4, 16) if gpu else (8, 500, 2, 4)
    if gpu:
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    model = Tagger(channels, length, depth, 20, args.variant).to(args.device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = make_batches(batch, length, 20, args.device)
    running = torch.zeros((), device=args.device)
    t0 = time.perf_counter()
    done = 0
    while done < args.steps and time.perf_counter() - t0 < args.max_seconds:
        x, y = next(batches)
        loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running.lerp_(loss.detach(), 0.05 if done else 1.0)
        done += 1
        if done % 50 == 0:
            print(f"step {done} running loss {running.item():.4f}", flush=True)
    last = running.item()
    took = time.perf_counter() - t0
    print(f"done steps={done} ms_per_step={1e3 * took / done:.2f} loss={last:.5f}")


if __name__ == "__main__":
    run()
