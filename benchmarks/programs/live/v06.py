"""Long-convolution language model over DNA-like sequences (implicit filters, gated convolution mixer)."""
import argparse
import json
import math
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class HyenaConfig:
    vocab: int = 16
    d_model: int = 512
    layers: int = 6
    seq_len: int = 16384
    batch: int = 4
    filter_width: int = 64
    emb_dim: int = 33
    grid: str = "exact"
    lr: float = 6e-4


def smooth_length(n):
    """Smallest even 2^a 3^b 5^c that is not below n."""
    best = 1 << (n - 1).bit_length()
    p5 = 1
    while p5 < best:
        p35 = p5
        while p35 < best:
            k = max(1, math.ceil(n / p35))
            cand = p35 * max(2, 1 << (k - 1).bit_length())
            if n <= cand < best:
                best = cand
            p35 *= 3
        p5 *= 5
    return best


GRIDS = {"exact": lambda n: n, "smooth": smooth_length}


class PositionalFeatures(nn.Module):
    def __init__(self, emb_dim, seq_len):
        super().__init__()
        bands = (emb_dim - 1) // 2
        t = torch.linspace(0, 1, seq_len)[:, None]
        w = 2 * math.pi * torch.arange(seq_len)[:, None] / seq_len
        f = torch.linspace(1e-4, bands - 1, bands)[None]
        self.register_buffer("z", torch.cat([t, torch.cos(f * w), -torch.sin(f * w)], dim=-1))
        self.register_buffer("t", t)


class Sine(nn.Module):
    def __init__(self, dim, w0=10.0):
        super().__init__()
        self.freq = nn.Parameter(w0 * torch.ones(dim))

    def forward(self, x):
        return torch.sin(self.freq * x)


class ImplicitFilter(nn.Module):
    def __init__(self, cfg: HyenaConfig):
        super().__init__()
        self.pos = PositionalFeatures(cfg.emb_dim, cfg.seq_len)
        w = cfg.filter_width
        self.mlp = nn.Sequential(nn.Linear(cfg.emb_dim, w), Sine(w), nn.Linear(w, w), Sine(w), nn.Linear(w, cfg.d_model, bias=False))
        decay = torch.linspace(math.log(1e-2) / 1.5, math.log(1e-2) / 0.3, cfg.d_model)
        self.register_buffer("decay", decay[None].abs())

    def forward(self):
        h = self.mlp(self.pos.z).float() * torch.exp(-self.pos.t * self.decay)
        return h.t().contiguous()


def causal_conv(u, k, skip, pick):
    """y[t] = sum_s k[s] u[t - s], through the frequency domain; u is (B, D, L) and k is (D, L)."""
    length = u.shape[-1]
    n = pick(length + k.shape[-1] - 1)
    u_f = torch.fft.rfft(u, n=n)
    k_f = torch.fft.rfft(k, n=n)
    y = torch.fft.irfft(u_f * k_f, n=n)[..., :length]
    return y + u * skip[:, None]


class Mixer(nn.Module):
    def __init__(self, cfg: HyenaConfig):
        super().__init__()
        d = cfg.d_model
        self.proj_in = nn.Linear(d, 3 * d)
        self.filter = ImplicitFilter(cfg)
        self.skip = nn.Parameter(torch.randn(d))
        self.proj_out = nn.Linear(d, d)
        self.pick = GRIDS[cfg.grid]

    def forward(self, x):
        q, k, v = self.proj_in(x).transpose(1, 2).contiguous().chunk(3, dim=1)
        u = (k * v).float()
        y = causal_conv(u, self.filter(), self.skip.float(), self.pick)
        return self.proj_out((q * y.to(q.dtype)).transpose(1, 2))


class Block(nn.Module):
    def __init__(self, cfg: HyenaConfig):
        super().__init__()
        d = cfg.d_model
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mixer = Mixer(cfg)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(approximate="tanh"), nn.Linear(4 * d, d))

    def forward(self, x):
        x = x + self.mixer(self.n1(x))
        return x + self.mlp(self.n2(x))


class GenomeLM(nn.Module):
    def __init__(self, cfg: HyenaConfig):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.d_model)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.d_model)
        self.head = nn.Linear(cfg.d_model, cfg.vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class ChromosomeStream:
    """Random windows of one long device-resident sequence."""

    def __init__(self, cfg, device, bases=50_000_000):
        self.cfg = cfg
        self.seq = torch.randint(0, 5, (bases,), dtype=torch.uint8, device=device)
        self.offsets = torch.arange(cfg.seq_len + 1, device=device)

    def batch(self):
        start = torch.randint(0, self.seq.numel() - self.cfg.seq_len - 1, (self.cfg.batch, 1), device=self.seq.device)
        return self.seq[start + self.offsets].long()


class Pretraining:
    def __init__(self, cfg, device):
        self.device, self.stream = device, ChromosomeStream(cfg, device, 50_000_000 if device.type == "cuda" else 20_000)
        self.model = GenomeLM(cfg).to(device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, betas=(0.9, 0.98), fused=device.type == "cuda")
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda s: min(1.0, (s + 1) / 100))

    def step(self):
        window = self.stream.batch()
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(window[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), window[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.sched.step()
        self.opt.zero_grad(set_to_none=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--steps", type=int, default=90)
    ap.add_argument("--max-seconds", type=float, default=60.0)
    ap.add_argument("--trace")
    args = ap.parse_args()
    torch.manual_seed(0)
    device = torch.device(args.device)
    cfg = HyenaConfig(grid={"slow": "exact", "fixed": "smooth"}[args.variant])
    if device.type == "cpu":
        cfg.d_model, cfg.layers, cfg.seq_len, cfg.batch, cfg.filter_width = 16, 2, 256, 2, 16
    job = Pretraining(cfg, device)
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for _ in range(4):
        job.step()
    wait()
    t0 = time.perf_counter()
    ticks = [t0]
    for _ in range(args.steps):
        job.step()
        ticks.append(time.perf_counter())
        if ticks[-1] - t0 > args.max_seconds:
            break
    wait()
    elapsed, n = time.perf_counter() - t0, len(ticks) - 1
    print(json.dumps({"program": "v06", "variant": args.variant, "steps": n, "step_ms_mean": 1e3 * elapsed / n,
                      "step_ms_median": 1e3 * statistics.median(b - a for a, b in zip(ticks, ticks[1:]))}), flush=True)
    if args.trace:
        P = torch.profiler
        acts = [P.ProfilerActivity.CPU] + ([P.ProfilerActivity.CUDA] if device.type == "cuda" else [])
        with P.profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                       schedule=P.schedule(wait=0, warmup=2, active=4),
                       on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                job.step()
                prof.step()


if __name__ == "__main__":
    main()
