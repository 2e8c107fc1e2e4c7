"""Trains a small latent image generator (flow matching, transformer backbone) in bfloat16."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gd05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1200
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=45.0)
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


def axial_angles(side, head_dim, theta=100.0):
    """Rotation angles of a side x side grid: half of the pairs turn with the row, half with the column."""
    pairs = head_dim // 4
    freqs = theta ** (-torch.arange(pairs, dtype=torch.float32) / pairs)
    ticks = torch.arange(side, dtype=torch.float32)
    rows = (ticks[:, None] * freqs).repeat_interleave(side, 0)
    cols = (ticks[:, None] * freqs).repeat(side, 1)
    return torch.cat([rows, cols], -1)


def rotate(x, cos, sin, keep):
    a, b = x.float().chunk(2, -1)
    turned = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
    return turned.type_as(x) if keep else turned


class Attention(nn.Module):
    def __init__(self, dim, heads, keep):
        super().__init__()
        self.heads, self.keep = heads, keep
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.q_norm = nn.RMSNorm(dim // heads)
        self.k_norm = nn.RMSNorm(dim // heads)

    def forward(self, x, cos, sin):
        n, length, dim = x.shape
        qkv = self.qkv(x).view(n, length, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        q = rotate(self.q_norm(q), cos, sin, self.keep)
        k = rotate(self.k_norm(k), cos, sin, self.keep)
        y = F.scaled_dot_product_attention(q, k, v.to(q.dtype))
        return self.out(y.to(x.dtype).transpose(1, 2).reshape(n, length, dim))


class Block(nn.Module):
    def __init__(self, dim, heads, keep):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False)
        self.attn = Attention(dim, heads, keep)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
        self.modulation = nn.Linear(dim, 6 * dim)

    def forward(self, x, cond, cos, sin):
        s1, b1, g1, s2, b2, g2 = self.modulation(F.silu(cond))[:, None].chunk(6, -1)
        x = x + g1 * self.attn(torch.addcmul(b1, self.norm1(x), 1 + s1), cos, sin)
        return x + g2 * self.mlp(torch.addcmul(b2, self.norm2(x), 1 + s2))


class Generator(nn.Module):
    def __init__(self, channels, side, dim, heads, depth, keep):
        super().__init__()
        self.inp = nn.Linear(channels, dim)
        self.label = nn.Embedding(1000, dim)
        self.time = nn.Sequential(nn.Linear(256, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList(Block(dim, heads, keep) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, channels)
        angles = axial_angles(side, dim // heads)
        self.angles = (angles.cos(), angles.sin())

    def place(self, device):
        self.to(device=device, dtype=torch.bfloat16)
        self.angles = tuple(t.to(device) for t in self.angles)
        return self

    def forward(self, x, t, label):
        freqs = torch.exp(-math.log(10000) * torch.arange(128, device=x.device) / 128)
        phase = 1000 * t[:, None] * freqs
        cond = self.time(torch.cat([phase.cos(), phase.sin()], -1).to(x.dtype)) + self.label(label)
        x = self.inp(x)
        for block in self.blocks:
            x = block(x, cond, *self.angles)
        return self.head(self.norm(x))


class Average:
    """Exponential moving average of the weights, in float32 beside the model."""

    def __init__(self, model, decay):
        self.decay = decay
        self.source = list(model.parameters())
        self.shadow = [p.detach().float().clone() for p in self.source]

    @torch.no_grad()
    def update(self):
        torch._foreach_mul_(self.shadow, self.decay)
        torch._foreach_add_(self.shadow, [p.float() for p in self.source], alpha=1 - self.decay)


def make_step(model, latents, labels, batch, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=device.type == "cuda")
    average = Average(model, 0.999)
    tracked = torch.zeros((), device=device)
    turn = 0

    def step():
        nonlocal turn
        rows = torch.randint(len(latents), (batch,), device=device)
        clean = latents[rows]
        noise = torch.randn_like(clean)
        t = torch.sigmoid(torch.randn(batch, device=device))
        mixed = torch.lerp(clean.float(), noise.float(), t[:, None, None]).to(clean.dtype)
        predicted = model(mixed, t, labels[rows])
        loss = F.mse_loss(predicted.float(), (noise - clean).float())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        turn += 1
        if turn % 4 == 0:
            average.update()
        tracked.lerp_(loss.detach(), 0.01)

    return step


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    side = 64 if big else 4
    dim, heads, depth, batch = (1536, 12, 8, 2) if big else (32, 2, 1, 2)
    model = Generator(16, side, dim, heads, depth, args.variant == "fixed").place(device)
    latents = torch.randn(64, side * side, 16, device=device, dtype=torch.bfloat16)
    labels = torch.randint(1000, (64,), device=device)
    run_loop(args, device, make_step(model, latents, labels, batch, device))


if __name__ == "__main__":
    main()
