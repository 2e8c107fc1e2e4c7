"""Flow-matching speech synthesis: a diffusion transformer sampled with Euler steps and guidance."""
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
class DiTConfig:
    latent: int = 64
    cond: int = 1024
    dim: int = 2560
    heads: int = 20
    layers: int = 16
    frames: int = 512
    euler_steps: int = 4
    guidance: float = 2.5
    weight_dtype: str = "float32"


def timestep_features(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000.0) * torch.arange(half, device=t.device, dtype=torch.float32) / half)
    arg = 1000.0 * t.float()[:, None] * freqs[None]
    return torch.cat([arg.cos(), arg.sin()], dim=-1)


class Modulated(nn.Module):
    """Transformer layer with adaptive shift / scale / gate."""

    def __init__(self, cfg: DiTConfig):
        super().__init__()
        d = cfg.dim
        self.heads = cfg.heads
        self.ada = nn.Linear(d, 6 * d)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)

    def forward(self, x, c):
        b, n, d = x.shape
        s1, k1, g1, s2, k2, g2 = self.ada(c)[:, None].chunk(6, dim=-1)
        h = F.layer_norm(x, (d,)).to(s1.dtype) * (1 + k1) + s1
        q, k, v = self.qkv(h).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + g1 * self.out(a)
        h = F.layer_norm(x, (d,)).to(s2.dtype) * (1 + k2) + s2
        return x + g2 * self.down(F.gelu(self.up(h), approximate="tanh"))


class SpeechDiT(nn.Module):
    def __init__(self, cfg: DiTConfig):
        super().__init__()
        d = cfg.dim
        self.cfg = cfg
        self.inp = nn.Linear(cfg.latent + cfg.cond, d)
        self.pos = nn.Parameter(0.02 * torch.randn(1, cfg.frames, d))
        self.time = nn.Sequential(nn.Linear(256, d), nn.SiLU(), nn.Linear(d, d))
        self.layers = nn.ModuleList(Modulated(cfg) for _ in range(cfg.layers))
        self.final = nn.Linear(d, cfg.latent)

    def forward(self, x, cond, t):
        h = self.inp(torch.cat([x.to(cond.dtype), cond], dim=-1)) + self.pos.to(torch.bfloat16)
        c = F.silu(self.time(timestep_features(t, 256)))
        for layer in self.layers:
            h = layer(h, c)
        return self.final(F.layer_norm(h, (self.cfg.dim,)))


def load_dit(cfg: DiTConfig, device):
    """Builds the network as the checkpoint loader does: random state, frozen, on the device."""
    with torch.device(device):
        model = SpeechDiT(cfg)
    for p in model.parameters():
        if p.dim() == 2:
            nn.init.normal_(p, std=0.02)
    model.requires_grad_(False)
    dtype = getattr(torch, cfg.weight_dtype)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.to(dtype)
    return model.eval()


class FlowSampler:
    def __init__(self, model, cfg: DiTConfig, device):
        self.model, self.cfg, self.device = model, cfg, device
        grid = torch.linspace(0, 1, cfg.euler_steps + 1)
        self.grid = (1 - torch.cos(grid * math.pi / 2)).tolist()

    @torch.no_grad()
    def generate(self, cond, noise):
        b = noise.shape[0]
        both = torch.cat([cond, torch.zeros_like(cond)], dim=0)
        x = noise
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            for t0, t1 in zip(self.grid, self.grid[1:]):
                t = torch.full((2 * b,), t0, device=self.device)
                v = self.model(torch.cat([x, x], dim=0), both, t).float()
                guided = v[b:] + self.cfg.guidance * (v[:b] - v[b:])
                x = x + (t1 - t0) * guided
        return x


class RequestQueue:
    """Conditioning features of waiting requests, prepared by the text front end."""

    def __init__(self, cfg: DiTConfig, device, depth=32, batch=1):
        self.items = torch.randn(depth, batch, cfg.frames, cfg.cond, device=device).to(torch.bfloat16)
        self.noise = torch.randn(depth, batch, cfg.frames, cfg.latent, device=device)
        self.cursor = 0

    def pop(self):
        i = self.cursor % self.items.shape[0]
        self.cursor += 1
        return self.items[i], self.noise[i]


class Server:
    def __init__(self, cfg: DiTConfig, device):
        self.queue = RequestQueue(cfg, device)
        self.sampler = FlowSampler(load_dit(cfg, device), cfg, device)
        self.level = None

    def serve(self):
        cond, noise = self.queue.pop()
        latents = self.sampler.generate(cond, noise)
        self.level = latents.square().mean()
        return latents


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--max-seconds", type=float, default=60.0)
    ap.add_argument("--trace")
    args = ap.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    cfg = DiTConfig(weight_dtype={"slow": "float32", "fixed": "bfloat16"}[args.variant])
    if device.type == "cpu":
        cfg.latent, cfg.cond, cfg.dim, cfg.heads, cfg.layers, cfg.frames = 8, 16, 64, 4, 2, 32
    server = Server(cfg, device)

    def settle():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(4):
        server.serve()
    settle()
    durations, begin = [], time.perf_counter()
    while len(durations) < args.steps and time.perf_counter() - begin < args.max_seconds:
        lap = time.perf_counter()
        server.serve()
        durations.append(time.perf_counter() - lap)
    settle()
    mean = (time.perf_counter() - begin) / len(durations)
    print(json.dumps({"program": "v07", "variant": args.variant, "steps": len(durations), "step_ms_mean": 1e3 * mean,
                      "step_ms_median": 1e3 * statistics.median(durations)}), flush=True)
    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        activities = [ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        with profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                     schedule=schedule(wait=0, warmup=2, active=4),
                     on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                server.serve()
                prof.step()


if __name__ == "__main__":
    main()
