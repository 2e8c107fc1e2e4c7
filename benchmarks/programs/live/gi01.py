"""GAN vocoder training with a multi-resolution mel loss on synthetic speech-like waveforms."""
import argparse
import json
import math
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gi01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1500
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=40.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


def hz_to_mel(f):
    f = np.asarray(f, dtype=np.float64)
    return np.where(f >= 1000.0, 15.0 + np.log(np.maximum(f, 1e-9) / 1000.0) / (np.log(6.4) / 27.0), f * 3.0 / 200.0)


def mel_to_hz(m):
    m = np.asarray(m, dtype=np.float64)
    return np.where(m >= 15.0, 1000.0 * np.exp((np.log(6.4) / 27.0) * (m - 15.0)), m * 200.0 / 3.0)


def mel_filterbank(sr, n_fft, n_mels, fmin, fmax):
    """Slaney-normalised triangular filters."""
    fft_freqs = np.linspace(0.0, sr / 2.0, 1 + n_fft // 2)
    mel_f = mel_to_hz(np.linspace(hz_to_mel(fmin), hz_to_mel(fmax), n_mels + 2))
    fdiff = np.diff(mel_f)
    ramps = np.subtract.outer(mel_f, fft_freqs)
    weights = np.zeros((n_mels, 1 + n_fft // 2), dtype=np.float32)
    for i in range(n_mels):
        lower = -ramps[i] / fdiff[i]
        upper = ramps[i + 2] / fdiff[i + 1]
        weights[i] = np.maximum(0, np.minimum(lower, upper))
    weights *= (2.0 / (mel_f[2:n_mels + 2] - mel_f[:n_mels]))[:, None].astype(np.float32)
    return weights


class MelLoss:
    SCALES = [(64, 10), (128, 20), (256, 40), (512, 80), (1024, 160), (2048, 320)]

    def __init__(self, sr, variant):
        self.sr = sr
        self.variant = variant
        self.mel_basis = {}
        self.hann = {}

    def spectrogram(self, y, n_fft, n_mels, fmin=0.0, fmax=11025.0):
        tag = f"{n_fft}_{n_mels}_{fmax}"
        lookup = tag if self.variant == "slow" else f"{tag}_{y.device}"
        if lookup not in self.mel_basis:
            mel = mel_filterbank(self.sr, n_fft, n_mels, fmin, fmax)
            self.mel_basis[f"{tag}_{y.device}"] = torch.from_numpy(mel).float().to(y.device)
        window = f"{n_fft}_{y.device}"
        if window not in self.hann:
            self.hann[window] = torch.hann_window(n_fft, device=y.device)
        spec = torch.stft(y, n_fft, hop_length=n_fft // 4, win_length=n_fft, window=self.hann[window],
                          center=True, pad_mode="reflect", return_complex=True)
        mag = torch.sqrt(torch.view_as_real(spec).pow(2).sum(-1) + 1e-9)
        return torch.log(torch.clamp(self.mel_basis[f"{tag}_{y.device}"] @ mag, min=1e-5))

    def __call__(self, real, fake):
        total = 0.0
        for n_fft, n_mels in self.SCALES:
            with torch.no_grad():
                target = self.spectrogram(real, n_fft, n_mels)
            total = total + F.l1_loss(self.spectrogram(fake, n_fft, n_mels), target)
        return total / len(self.SCALES)


class ResBlock(nn.Module):
    def __init__(self, ch, kernel, dilations=(1, 3)):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(ch, ch, kernel, dilation=d, padding=(kernel - 1) * d // 2) for d in dilations)

    def forward(self, x):
        for conv in self.convs:
            x = x + conv(F.leaky_relu(x, 0.1))
        return x


class Generator(nn.Module):
    def __init__(self, n_in=80, ch=256, rates=(8, 8, 2, 2), kernels=(3, 7)):
        super().__init__()
        self.pre = nn.Conv1d(n_in, ch, 7, padding=3)
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for r in rates:
            self.ups.append(nn.ConvTranspose1d(ch, ch // 2, 2 * r, r, padding=r // 2))
            ch //= 2
            self.blocks.append(nn.ModuleList(ResBlock(ch, k) for k in kernels))
        self.post = nn.Conv1d(ch, 1, 7, padding=3)

    def forward(self, x):
        x = self.pre(x)
        for up, blocks in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, 0.1))
            x = sum(b(x) for b in blocks) / len(blocks)
        return torch.tanh(self.post(F.leaky_relu(x))).squeeze(1)


class PeriodDiscriminator(nn.Module):
    def __init__(self, period, ch=32):
        super().__init__()
        self.period = period
        chans = [1, ch, 2 * ch, 4 * ch]
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, (5, 1), (3, 1), padding=(2, 0)) for a, b in zip(chans, chans[1:]))
        self.post = nn.Conv2d(chans[-1], 1, (3, 1), padding=(1, 0))

    def forward(self, y):
        pad = -y.shape[-1] % self.period
        y = F.pad(y.unsqueeze(1), (0, pad), mode="reflect")
        y = y.view(y.shape[0], 1, -1, self.period)
        for conv in self.convs:
            y = F.leaky_relu(conv(y), 0.1)
        return self.post(y)


class VocoderTrainer:
    def __init__(self, args, device):
        self.device = device
        big = device.type == "cuda"
        self.batch, self.frames = (16, 32) if big else (2, 16)
        self.gen = Generator(ch=256 if big else 32).to(device)
        self.discs = nn.ModuleList(PeriodDiscriminator(p) for p in (2, 3, 5)).to(device)
        fused = dict(fused=True) if big else {}
        self.opt_g = torch.optim.AdamW(self.gen.parameters(), 2e-4, betas=(0.8, 0.99), **fused)
        self.opt_d = torch.optim.AdamW(self.discs.parameters(), 2e-4, betas=(0.8, 0.99), **fused)
        self.mel_loss = MelLoss(22050, args.variant)
        n = self.frames * 256
        t = torch.arange(n, device=device) / 22050.0
        f0 = 80 + 200 * torch.rand(64, 1, device=device)
        self.corpus = sum(torch.sin(2 * math.pi * f0 * k * t) / k for k in (1, 2, 3, 5)) * 0.3
        self.feats = torch.randn(64, 80, self.frames, device=device)
        self.seen = 0
        self.log = []

    def step(self):
        pick = torch.randint(0, 64, (self.batch,), device=self.device)
        real, feats = self.corpus[pick], self.feats[pick]
        fake = self.gen(feats)
        loss_d = 0.0
        for d in self.discs:
            loss_d = loss_d + (d(real) - 1).pow(2).mean() + d(fake.detach()).pow(2).mean()
        self.opt_d.zero_grad()
        loss_d.backward()
        self.opt_d.step()
        adv = sum((d(fake) - 1).pow(2).mean() for d in self.discs)
        loss_g = adv + 45.0 * self.mel_loss(real, fake)
        self.opt_g.zero_grad()
        loss_g.backward()
        self.opt_g.step()
        self.seen += 1
        if self.seen % 50 == 0:
            self.log.append(loss_g.item())


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    trainer = VocoderTrainer(args, device)
    run_loop(args, device, trainer.step)


if __name__ == "__main__":
    main()
