"""Image generation with a diffusion transformer steered by depth and edge maps."""
import argparse
import json
import math
import os
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def parse_args(variants, default_steps, cpu_steps=4):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=None)
    ap.add_argument("--max-seconds", type=float, default=1e9)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    if args.steps is None:
        args.steps = default_steps if args.device == "cuda" else cpu_steps
    return args


def run_loop(args, step, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    count = 0
    for _ in range(warmup):
        step(count)
        count += 1
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step(count)
        count += 1
        marks.append(time.perf_counter())
        if marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - marks[0]
    laps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": os.path.splitext(os.path.basename(__file__))[0],
        "variant": args.variant,
        "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 4),
        "step_ms_median": round(1e3 * statistics.median(laps), 4),
    }), flush=True)
    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        with profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                     schedule=schedule(wait=0, warmup=2, active=4, repeat=1),
                     on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                step(count)
                count += 1
                prof.step()
        sync()


class HintEncoder(nn.Module):
    def __init__(self, widths, dim, patch):
        super().__init__()
        layers, before = [], 3
        for at, width in enumerate(widths):
            layers += [nn.Conv2d(before, width, 3, stride=1 if at == 0 else 2, padding=1), nn.SiLU(),
                       nn.Conv2d(width, width, 3, padding=1), nn.SiLU()]
            before = width
        self.body = nn.Sequential(*layers)
        self.out = nn.Conv2d(before, dim, patch, stride=patch)

    def forward(self, image):
        return self.out(self.body(image)).flatten(2).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False)
        self.norm3 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.cross_q = nn.Linear(dim, dim)
        self.cross_kv = nn.Linear(dim, 2 * dim)
        self.cross_proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
        self.modulate = nn.Linear(dim, 6 * dim)

    def forward(self, x, t, text):
        b, n, d = x.shape
        s1, m1, g1, s2, m2, g2 = self.modulate(t).unsqueeze(1).chunk(6, dim=-1)
        h = torch.addcmul(s1, self.norm1(x), m1 + 1)
        q, k, v = self.qkv(h).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = torch.addcmul(x, self.proj(y), g1)
        q = self.cross_q(self.norm3(x)).view(b, n, self.heads, -1).transpose(1, 2)
        k, v = self.cross_kv(text).view(b, text.shape[1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + self.cross_proj(y)
        h = torch.addcmul(s2, self.norm2(x), m2 + 1)
        return torch.addcmul(x, self.mlp(h), g2)


class SteeredTransformer(nn.Module):
    def __init__(self, dim, depth, heads, grid, channels, patch):
        super().__init__()
        self.dim, self.grid, self.patch, self.channels = dim, grid, patch, channels
        self.embed = nn.Conv2d(channels, dim, patch, stride=patch)
        self.place = nn.Parameter(torch.randn(1, grid * grid, dim) * 0.02)
        self.time = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim), nn.SiLU())
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, channels * patch * patch)

    def forward(self, latents, t, text, hints):
        half = self.dim // 2
        freq = torch.exp(torch.arange(half, device=latents.device) * (-math.log(10000.0) / half))
        wave = t[:, None] * freq
        t = self.time(torch.cat((wave.cos(), wave.sin()), dim=-1).to(latents.dtype))
        x = self.embed(latents).flatten(2).transpose(1, 2) + self.place
        for hint in hints:
            x = x + hint
        for block in self.blocks:
            x = block(x, t, text)
        x = self.out(self.norm(x))
        x = x.view(-1, self.grid, self.grid, self.channels, self.patch, self.patch)
        return x.permute(0, 3, 1, 4, 2, 5).reshape(latents.shape)


class Painter(nn.Module):
    def __init__(self, channels, widths):
        super().__init__()
        layers, before = [], channels
        for width in widths:
            layers += [nn.Conv2d(before, width * 4, 3, padding=1), nn.PixelShuffle(2), nn.SiLU()]
            before = width
        self.body = nn.Sequential(*layers, nn.Conv2d(before, 3, 3, padding=1))

    def forward(self, latents):
        return self.body(latents).clamp(-1, 1)


class Pipeline:
    def __init__(self, device, denoise_type, denoise_steps):
        self.device = device
        if device == "cuda":
            self.images, self.size, dim, depth, heads, widths = 4, 1024, 768, 10, 12, (32, 64, 128, 256)
            decode, self.tokens, dtype = (256, 128, 32), 77, torch.bfloat16
        else:
            self.images, self.size, dim, depth, heads, widths = 1, 64, 32, 2, 2, (4, 4, 8, 8)
            decode, self.tokens, dtype = (8, 8, 4), 7, torch.float32
        self.dtype, self.dim = dtype, dim
        side = self.size // 8
        self.shape = (self.images, 4, side, side)
        self.model = SteeredTransformer(dim, depth, heads, side // 2, 4, 2).to(device, dtype).eval()
        self.encoders = [HintEncoder(widths, dim, 2).to(device, dtype, memory_format=torch.channels_last).eval()
                         for _ in range(2)]
        self.painter = Painter(4, decode).to(device, dtype, memory_format=torch.channels_last).eval()
        alphas = torch.cos(torch.linspace(0, 1.5, 1000)) ** 2
        self.times = torch.linspace(999, 0, denoise_steps + 1).long().tolist()
        self.alphas = [alphas[t].item() for t in self.times]
        self.denoise = denoise_type(self)
        self.guidance = 5.0

    def encode_hints(self, maps):
        doubled = [torch.cat((m, m)) for m in maps]
        return [encoder(m) for encoder, m in zip(self.encoders, doubled)]

    def predict(self, latents, t, text, hints):
        both = torch.cat((latents, latents))
        stamp = torch.full((both.shape[0],), float(t), device=self.device)
        plain, steered = self.model(both, stamp, text, hints).chunk(2)
        return torch.lerp(plain, steered, self.guidance)

    def step(self, i):
        text = torch.randn(2 * self.images, self.tokens, self.dim, device=self.device, dtype=self.dtype)
        maps = [torch.rand(self.images, 3, self.size, self.size, device=self.device, dtype=self.dtype)
                .contiguous(memory_format=torch.channels_last) for _ in self.encoders]
        latents = torch.randn(self.shape, device=self.device, dtype=self.dtype)
        predict = self.denoise(text, maps)
        for now, later, t in zip(self.alphas, self.alphas[1:], self.times):
            noise = predict(latents, t)
            clean = (latents - noise * (1 - now) ** 0.5) / max(now, 1e-2) ** 0.5
            latents = clean * later ** 0.5 + noise * (1 - later) ** 0.5
        picture = self.painter(latents.contiguous(memory_format=torch.channels_last))
        self.picture = picture.add(1).mul(127.5).to(torch.uint8)


def mapped(pipe):
    def prepare(text, maps):
        return lambda latents, t: pipe.predict(latents, t, text, pipe.encode_hints(maps))
    return prepare


def embedded(pipe):
    def prepare(text, maps):
        hints = pipe.encode_hints(maps)
        return lambda latents, t: pipe.predict(latents, t, text, hints)
    return prepare


def main():
    args = parse_args(["slow", "fixed"], 40, cpu_steps=2)
    torch.manual_seed(0)
    denoise_type = {"slow": mapped, "fixed": embedded}[args.variant]
    with torch.inference_mode():
        run_loop(args, Pipeline(args.device, denoise_type, 6).step, warmup=3)


if __name__ == "__main__":
    main()
