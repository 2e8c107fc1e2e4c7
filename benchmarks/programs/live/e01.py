"""Keyword spotting with on-device reverberation of the training clips."""
import dataclasses
import logging

import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.fft import next_fast_len

from blocks_e import StepTimes, base_parser

log = logging.getLogger("kws")


@dataclasses.dataclass
class Config:
    sample_rate: int = 16000
    clip: int = 160000
    rir: int = 32000
    batch: int = 512
    n_mels: int = 64
    width: int = 128
    classes: int = 35
    lr: float = 3e-4


def conv_length(n_signal, n_ir, rounded):
    n = n_signal + n_ir - 1
    return next_fast_len(n, real=True) if rounded else n


class Reverberate(nn.Module):
    """Convolves every clip with its own random room response and coloured noise."""

    def __init__(self, cfg, n_conv, device):
        super().__init__()
        self.cfg, self.n = cfg, n_conv
        t = torch.arange(cfg.rir, device=device) / cfg.sample_rate
        self.register_buffer("t", t)

    def room(self, batch):
        rt60 = 0.2 + 0.6 * torch.rand(batch, 1, device=self.t.device)
        ir = torch.randn(batch, self.cfg.rir, device=self.t.device) * torch.exp(-6.9 * self.t / rt60)
        return ir / ir.norm(dim=1, keepdim=True)

    def convolve(self, x, ir):
        spec = torch.fft.rfft(x, n=self.n) * torch.fft.rfft(ir, n=self.n)
        return torch.fft.irfft(spec, n=self.n)[:, : x.shape[1]]

    @torch.no_grad()
    def forward(self, wave):
        ir = self.room(wave.shape[0])
        wet = self.convolve(wave, ir)
        noise = self.convolve(torch.randn_like(wave), ir.flip(0))
        snr = 0.02 + 0.1 * torch.rand(wave.shape[0], 1, device=wave.device)
        return wet + snr * noise


class LogMel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.register_buffer("window", torch.hann_window(512))
        fb = torch.zeros(257, cfg.n_mels)
        edges = torch.linspace(0, 256, cfg.n_mels + 2)
        k = torch.arange(257.0)
        for m in range(cfg.n_mels):
            lo, mid, hi = edges[m], edges[m + 1], edges[m + 2]
            fb[:, m] = torch.minimum((k - lo) / (mid - lo), (hi - k) / (hi - mid)).clamp(min=0)
        self.register_buffer("fb", fb)

    @torch.no_grad()
    def forward(self, x):
        s = torch.stft(x, 512, hop_length=320, window=self.window, return_complex=True).abs().square()
        return torch.log(torch.einsum("bft,fm->bmt", s, self.fb) + 1e-6)


class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        self.body = nn.Sequential(
            nn.Conv1d(cfg.n_mels, w, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv1d(w, w, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv1d(w, w, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(w, cfg.classes)

    def forward(self, m):
        return self.head(self.body(m).mean(-1))


def main():
    args = base_parser().parse_args()
    logging.basicConfig(level=logging.INFO)
    cfg = Config()
    if args.tiny:
        cfg = Config(clip=3000, rir=500, batch=4, width=16)
    torch.manual_seed(0)
    dev = torch.device(args.device)
    n = conv_length(cfg.clip, cfg.rir, rounded=args.variant == "fixed")
    augment, mel, net = Reverberate(cfg, n, dev), LogMel(cfg).to(dev), Net(cfg).to(dev)
    opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr)
    pool = [torch.randn(cfg.batch, cfg.clip, device=dev) for _ in range(3)]
    labels = [torch.randint(cfg.classes, (cfg.batch,), device=dev) for _ in range(3)]
    times = StepTimes(dev)
    warm = 1 if args.tiny else 6
    for step in range(args.steps + warm):
        if step == warm:
            times.begin()
        wave, y = pool[step % 3], labels[step % 3]
        feats = mel(augment(wave))
        with torch.autocast(dev.type, dtype=torch.bfloat16):
            logits = net(feats)
        loss = F.cross_entropy(logits.float(), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 50 == 49:
            log.info("step %d loss %.4f", step, loss.item())
        if step >= warm:
            times.tick()
    times.finish()


if __name__ == "__main__":
    main()
