"""Self-supervised pre-training of a speech encoder (random-projection targets) with speed perturbation on the GPU."""
import argparse
import json
import math
import random
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def sinc_bank(orig, new, device, zeros=6, rolloff=0.99):
    """Windowed-sinc polyphase filters, one row for each output phase (same formula as torchaudio)."""
    base = min(orig, new) * rolloff
    width = math.ceil(zeros * orig / base)
    taps = torch.arange(-width, width + orig, dtype=torch.float64, device=device)[None] / orig
    t = torch.arange(0, -new, -1, dtype=torch.float64, device=device)[:, None] / new + taps
    t *= base
    t.clamp_(-zeros, zeros)
    window = torch.cos(t * math.pi / zeros / 2) ** 2
    t *= math.pi
    bank = torch.where(t == 0, torch.ones((), dtype=t.dtype, device=device), t.sin() / t)
    bank *= window * (base / orig)
    return bank.float(), width


def resample(wave, orig, new):
    div = math.gcd(orig, new)
    orig, new = orig // div, new // div
    if orig == new:
        return wave
    bank, width = sinc_bank(orig, new, wave.device)
    length = wave.shape[-1]
    frames = F.pad(wave, (width, width + orig)).unfold(-1, bank.shape[1], orig)
    out = (frames @ bank.t()).flatten(1)
    return out[:, : math.ceil(new * length / orig)]


class SpeedPerturb:
    def __init__(self, rate, low=0.9, high=1.1, grid=1, seed=0):
        self.rate, self.low, self.high, self.grid = rate, low, high, grid
        self.rng = random.Random(seed)

    def draw(self):
        target = int(self.rate * self.rng.uniform(self.low, self.high))
        return max(self.grid, round(target / self.grid) * self.grid)

    def __call__(self, wave, groups):
        size = wave.shape[-1]
        out = []
        for part in wave.chunk(groups):
            moved = resample(part, self.rate, self.draw())[:, :size]
            out.append(F.pad(moved, (0, size - moved.shape[-1])))
        return torch.cat(out)


def mel_matrix(bins, n_fft, rate):
    top = 2595 * math.log10(1 + rate / 2 / 700)
    points = 700 * (10 ** (torch.linspace(0, top, bins + 2) / 2595) - 1)
    freqs = torch.linspace(0, rate / 2, n_fft // 2 + 1)
    up = (freqs[None] - points[:-2, None]) / (points[1:-1] - points[:-2])[:, None]
    down = (points[2:, None] - freqs[None]) / (points[2:] - points[1:-1])[:, None]
    return torch.minimum(up, down).clamp_min(0)


class LogMel(nn.Module):
    def __init__(self, rate, bins):
        super().__init__()
        self.n_fft, self.hop = rate // 40, rate // 100
        self.register_buffer("window", torch.hann_window(self.n_fft))
        self.register_buffer("mel", mel_matrix(bins, self.n_fft, rate))

    def forward(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True).abs().square()
        feats = torch.log(self.mel @ spec + 1e-6)
        feats = feats - feats.mean(-1, keepdim=True)
        return feats.transpose(1, 2)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Encoder(nn.Module):
    def __init__(self, bins, stack, dim, depth, heads, codes):
        super().__init__()
        self.stack = stack
        self.front = nn.Linear(bins * stack, dim)
        self.mask = nn.Parameter(torch.randn(dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, codes)
        self.register_buffer("project", torch.randn(bins * stack, 16) / math.sqrt(bins * stack))
        self.register_buffer("codebook", F.normalize(torch.randn(codes, 16), dim=-1))

    def forward(self, feats):
        b, t, f = feats.shape
        t = t // self.stack
        x = feats[:, : t * self.stack].reshape(b, t, f * self.stack)
        with torch.no_grad():
            target = (F.normalize(x @ self.project, dim=-1) @ self.codebook.t()).argmax(-1)
            hidden = torch.rand(b, t, device=x.device) < 0.4
        h = torch.where(hidden[..., None], self.mask, self.front(x))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))
        loss = F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), reduction="none")
        w = hidden.flatten().float()
        return (loss * w).sum() / w.sum()


def build(args, device):
    tiny = device.type == "cpu"
    rate = 800 if tiny else 16000
    seconds, batch, groups = (2, 4, 2) if tiny else (10, 64, 4)
    # -- variant
    grid = {"slow": 1, "fixed": rate // 20}[args.variant]
    # --
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    perturb = SpeedPerturb(rate, grid=grid)
    frontend = LogMel(rate, 8 if tiny else 80).to(device)
    model = (Encoder(8, 4, 32, 2, 2, 64) if tiny else Encoder(80, 4, 768, 16, 12, 8192)).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    pool = [torch.randn(batch, rate * seconds) * 0.1 for _ in range(4)]
    if not tiny:
        pool = [w.pin_memory() for w in pool]
    state = {"n": 0}

    def step():
        wave = pool[state["n"] % len(pool)].to(device, non_blocking=True)
        state["n"] += 1
        with torch.no_grad():
            feats = frontend(perturb(wave, groups))
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(feats)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss

    return step


def measure(program, args, step, device):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for _ in range(args.warmup):
        step()
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step()
        marks.append(time.perf_counter())
        if args.max_seconds and marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    end = time.perf_counter()
    gaps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": program, "variant": args.variant, "steps": len(gaps),
        "step_ms_mean": round((end - marks[0]) * 1e3 / len(gaps), 3),
        "step_ms_median": round(statistics.median(gaps) * 1e3, 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for _ in range(6):
                step()
                prof.step()


def parse_args(variants, steps, tiny_steps=4, warmup=5):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    args = p.parse_args()
    if args.steps is None:
        args.steps = steps[args.variant] if args.device == "cuda" else tiny_steps
    args.warmup = warmup if args.device == "cuda" else 1
    return args


if __name__ == "__main__":
    args = parse_args(["slow", "fixed"], {"slow": 110, "fixed": 200})
    device = torch.device(args.device)
    measure("s01", args, build(args, device), device)
