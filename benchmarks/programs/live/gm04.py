"""Radiance-field training from posed images held on the device."""
import argparse
import json
import math
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gm04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1800
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
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


class Scene:
    """Synthetic captures on a sphere around the origin."""

    def __init__(self, views, side, device, seed=2):
        g = torch.Generator().manual_seed(seed)
        self.side, self.focal = side, 1.2 * side
        directions = F.normalize(torch.randn(views, 3, generator=g), dim=-1)
        self.poses = torch.stack([self.look_at(d * 4.0) for d in directions]).to(device)
        self.images = torch.randint(0, 256, (views, side * side, 3), device=device, dtype=torch.uint8)

    @staticmethod
    def look_at(origin):
        back = F.normalize(origin, dim=0)
        right = F.normalize(torch.linalg.cross(torch.tensor([0.0, 0.0, 1.0]), back), dim=0)
        up = torch.linalg.cross(back, right)
        return torch.stack([right, up, back, origin], 1)

    def rays(self, view, pixels):
        rows = torch.div(pixels, self.side, rounding_mode="floor")
        x = (pixels % self.side - 0.5 * self.side) / self.focal
        y = -(rows - 0.5 * self.side) / self.focal
        local = torch.stack([x, y, -torch.ones_like(x)], -1)
        pose = self.poses[view]
        directions = local @ pose[:, :3].T
        return pose[:, 3].expand_as(directions), directions


class PixelPicker:
    """Chooses a view and distinct pixels in it."""

    def __init__(self, scene, count, variant, seed=11):
        self.total, self.views, self.count = scene.side ** 2, scene.images.shape[0], count
        self.variant = variant
        self.legacy = np.random.RandomState(seed)
        self.rng = np.random.default_rng(seed)

    def draw(self):
        if self.variant == "fixed":
            view = int(self.rng.integers(self.views))
            pixels = self.rng.choice(self.total, size=self.count, replace=False, shuffle=False)
        else:
            view = int(self.legacy.randint(self.views))
            pixels = self.legacy.choice(self.total, size=self.count, replace=False)
        return view, torch.from_numpy(pixels)


def encode(x, bands):
    scales = 2.0 ** torch.arange(bands, device=x.device, dtype=x.dtype)
    angles = (x[..., None, :] * scales[:, None]).flatten(-2)
    return torch.cat([x, torch.sin(angles), torch.cos(angles)], -1)


class Field(nn.Module):
    def __init__(self, width=256, depth=8, skip=4, bands=10, view_bands=4):
        super().__init__()
        self.bands, self.view_bands, self.skip = bands, view_bands, skip
        inputs, view_inputs = 3 + 6 * bands, 3 + 6 * view_bands
        self.trunk = nn.ModuleList(
            nn.Linear(inputs if i == 0 else width + (inputs if i == skip else 0), width) for i in range(depth))
        self.density = nn.Linear(width, 1)
        self.bottleneck = nn.Linear(width, width)
        self.colour = nn.Sequential(nn.Linear(width + view_inputs, width // 2), nn.ReLU(), nn.Linear(width // 2, 3))

    def forward(self, points, directions):
        e = encode(points, self.bands)
        h = e
        for i, layer in enumerate(self.trunk):
            if i == self.skip:
                h = torch.cat([h, e], -1)
            h = F.relu(layer(h))
        v = encode(directions, self.view_bands)[:, None].expand(-1, points.shape[1], -1)
        rgb = torch.sigmoid(self.colour(torch.cat([self.bottleneck(h), v], -1)))
        return rgb, F.softplus(self.density(h)[..., 0])


def composite(rgb, sigma, depths):
    gaps = torch.diff(depths, append=depths[:, -1:] + 1e-1)
    alpha = 1 - torch.exp(-sigma.float() * gaps)
    through = torch.cumprod(1 - alpha + 1e-6, -1)
    weights = alpha * torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], -1)
    return (weights[..., None] * rgb.float()).sum(1) + (1 - weights.sum(-1, keepdim=True))


class Reconstruction:
    def __init__(self, scene, picker, samples, width, device):
        self.scene, self.picker, self.samples, self.device = scene, picker, samples, device
        self.field = Field(width=width).to(device)
        self.optimizer = torch.optim.Adam(self.field.parameters(), lr=5e-4, fused=device.type == "cuda")
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9999)
        self.mse = torch.zeros((), device=device)
        self.step_count = 0

    def depths(self, count, near=2.0, far=6.0):
        edges = torch.linspace(near, far, self.samples + 1, device=self.device)
        jitter = torch.rand(count, self.samples, device=self.device)
        return edges[:-1] + (edges[1:] - edges[:-1]) * jitter

    def render(self, origins, directions):
        depths = self.depths(origins.shape[0])
        points = origins[:, None] + directions[:, None] * depths[..., None]
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            rgb, sigma = self.field(points, F.normalize(directions, dim=-1))
        return composite(rgb, sigma, depths)

    def step(self):
        view, pixels = self.picker.draw()
        pixels = pixels.to(self.device, non_blocking=True)
        target = self.scene.images[view].index_select(0, pixels).float() / 255
        loss = F.mse_loss(self.render(*self.scene.rays(view, pixels)), target)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.mse.lerp_(loss.detach(), 0.05)
        self.step_count += 1
        if self.step_count % 250 == 0:
            print(f"step {self.step_count} psnr {-10 * math.log10(self.mse.item()):.2f}", flush=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    small = device.type == "cpu"
    scene = Scene(4 if small else 48, 64 if small else 880, device)
    picker = PixelPicker(scene, 64 if small else 4096, args.variant)
    job = Reconstruction(scene, picker, 16 if small else 64, 32 if small else 256, device)
    run_loop(args, device, job.step)


if __name__ == "__main__":
    main()
