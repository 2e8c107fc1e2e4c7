"""Masked-autoencoder pre-training of a ViT-L/16 with a loss guard before every update."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


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


class MaskedAutoencoder(nn.Module):
    def __init__(self, image, patch, dim, depth, heads, ddim, ddepth, dheads, keep):
        super().__init__()
        self.patch, self.grid = patch, image // patch
        self.count, self.keep = self.grid ** 2, int(self.grid ** 2 * keep)
        self.embed = nn.Linear(3 * patch * patch, dim)
        self.pos = nn.Parameter(torch.randn(self.count, dim) * 0.02)
        self.dpos = nn.Parameter(torch.randn(self.count, ddim) * 0.02)
        self.hole = nn.Parameter(torch.randn(ddim) * 0.02)
        self.encoder = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm, self.bridge = nn.LayerNorm(dim), nn.Linear(dim, ddim)
        self.decoder = nn.ModuleList(Block(ddim, dheads) for _ in range(ddepth))
        self.dnorm, self.head = nn.LayerNorm(ddim), nn.Linear(ddim, 3 * patch * patch)

    def patches(self, image):
        b, g, p = image.shape[0], self.grid, self.patch
        x = (image.float() - 120.0) / 58.0
        return x.view(b, 3, g, p, g, p).permute(0, 2, 4, 3, 5, 1).reshape(b, g * g, p * p * 3)

    def forward(self, image, noise):
        target = self.patches(image)
        order = noise.argsort(1)
        back = order.argsort(1)
        keep = order[:, : self.keep, None]
        x = self.embed(target.gather(1, keep.expand(-1, -1, target.shape[-1])))
        x = x + self.pos[keep.squeeze(-1)]
        for block in self.encoder:
            x = block(x)
        x = self.bridge(self.norm(x))
        rest = self.hole.to(x.dtype).expand(x.shape[0], self.count - self.keep, -1)
        x = torch.cat((x, rest), 1).gather(1, back[..., None].expand(-1, -1, x.shape[-1])) + self.dpos
        for block in self.decoder:
            x = block(x)
        guess = self.head(self.dnorm(x)).float()
        target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-6).sqrt()
        error = (guess - target).square().mean(-1)
        masked = (back >= self.keep).float()
        return (error * masked).sum() / masked.sum()


class LossGuard:
    """Skips the update of a batch whose loss is not finite or far above the running level."""

    def __init__(self):
        self.level = None

    def __call__(self, value):
        ok = math.isfinite(value) and (self.level is None or value < 4 * self.level)
        if ok:
            self.level = value if self.level is None else 0.99 * self.level + 0.01 * value
        return ok


def build(args, device):
    tiny = device.type == "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    batch = 4 if tiny else 384
    if tiny:
        size, model = 32, MaskedAutoencoder(32, 8, 32, 2, 2, 16, 1, 2, 0.25)
    else:
        size, model = 224, MaskedAutoencoder(224, 16, 1024, 24, 16, 512, 8, 16, 0.25)
    model = model.to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.05, fused=True)
    forward = torch.compile(model, fullgraph=True)
    guard = LossGuard()
    pool = [torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8) for _ in range(4)]
    if not tiny:
        pool = [t.pin_memory() for t in pool]
    state = {"n": 0}

    def step():
        image = pool[state["n"] % len(pool)].to(device, non_blocking=True)
        state["n"] += 1
        noise = torch.rand(batch, model.count, device=device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = forward(image, noise)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if guard(loss.item()):
            opt.step()
        opt.zero_grad(set_to_none=True)

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
    args = parse_args(["healthy"], {"healthy": 75})
    device = torch.device(args.device)
    measure("s08", args, build(args, device), device)
