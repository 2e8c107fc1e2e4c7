"""Contrastive pre-training on large crops, both views made on the device."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gc08"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 330
DEFAULT_SECONDS = 50.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=DEFAULT_SECONDS)
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


class Views:
    """Crop, flip, colour and blur a batch of uint8 images into one float view."""

    def __init__(self, side, share=0.1, mode="slow"):
        self.side = side
        size = int(side * share)
        self.size = size + 1 - size % 2
        self.mode = mode

    def crop_flip(self, x):
        b, device = x.size(0), x.device
        scale = torch.empty(b, device=device).uniform_(0.45, 1.0)
        shift = (torch.rand(b, 2, device=device) * 2 - 1) * (1 - scale).unsqueeze(1)
        flip = torch.where(torch.rand(b, device=device) < 0.5, -1.0, 1.0)
        theta = torch.zeros(b, 2, 3, device=device)
        theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = scale * flip, scale, shift
        grid = F.affine_grid(theta, (b, 3, self.side, self.side), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False, padding_mode="reflection")

    def colour(self, x):
        b, device = x.size(0), x.device
        brightness = torch.empty(b, 1, 1, 1, device=device).uniform_(0.6, 1.4)
        contrast = torch.empty(b, 1, 1, 1, device=device).uniform_(0.6, 1.4)
        x = x * brightness
        mean = x.mean((1, 2, 3), keepdim=True)
        x = (x - mean) * contrast + mean
        grey = x.mean(1, keepdim=True)
        keep = (torch.rand(b, 1, 1, 1, device=device) > 0.2).float()
        return (x * keep + grey * (1 - keep)).clamp_(0, 1)

    def soften(self, x):
        sigma = torch.empty((), device=x.device).uniform_(0.1, 2.0) * (self.size / 23)
        half = (self.size - 1) / 2
        at = torch.linspace(-half, half, self.size, device=x.device)
        line = torch.exp(-0.5 * (at / sigma) ** 2)
        line = line / line.sum()
        pad = self.size // 2
        x = F.pad(x, (pad, pad, pad, pad), mode="reflect")
        channels = x.size(1)
        if self.mode == "slow":
            kernel = torch.outer(line, line).expand(channels, 1, -1, -1).contiguous()
            return F.conv2d(x, kernel, groups=channels)
        across = line.view(1, 1, 1, -1).expand(channels, -1, -1, -1).contiguous()
        down = line.view(1, 1, -1, 1).expand(channels, -1, -1, -1).contiguous()
        return F.conv2d(F.conv2d(x, across, groups=channels), down, groups=channels)

    @torch.no_grad()
    def __call__(self, images):
        x = images.float().div_(255)
        return self.soften(self.colour(self.crop_flip(x))).sub_(0.45).div_(0.225)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(a.transpose(1, 2).reshape(b, n, c))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Encoder(nn.Module):
    def __init__(self, side, patch, dim, depth, out):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, patch, patch)
        self.pos = nn.Parameter(torch.randn(1, (side // patch) ** 2, dim) * 0.02)
        self.blocks = nn.Sequential(*[Block(dim, dim // 64) for _ in range(depth)])
        self.project = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, out))

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2) + self.pos
        return F.normalize(self.project(self.blocks(x).mean(1)).float(), dim=-1)


def nt_xent(a, b, temperature=0.2):
    z = torch.cat([a, b])
    scores = z @ z.t() / temperature
    scores.fill_diagonal_(-1e4)
    n = len(a)
    target = torch.arange(2 * n, device=z.device).roll(n)
    return F.cross_entropy(scores, target)


class ImageBank:
    def __init__(self, count, side, device):
        self.images = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, device=device)

    def batches(self, size):
        while True:
            order = torch.randperm(len(self.images), device=self.images.device)
            for lo in range(0, len(order) - size + 1, size):
                yield self.images[order[lo:lo + size]]


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(6)
    big = device.type == "cuda"
    side, dim, depth, batch = (448, 384, 10, 48) if big else (64, 64, 2, 4)
    views = Views(side, mode=args.variant)
    model = Encoder(side, 16, dim, depth, 128).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.05, fused=big)
    batches = ImageBank(8 * batch, side, device).batches(batch)
    log = []

    def step():
        images = next(batches)
        first, second = views(images), views(images)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            a, b = model(torch.cat([first, second])).chunk(2)
        loss = nt_xent(a, b)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        log.append(loss.detach())
        if len(log) >= 40:
            torch.stack(log).mean().item()
            log.clear()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
