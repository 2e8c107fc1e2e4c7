"""Image generator training that follows a Frechet distance on its own feature net."""
import argparse
import json
import statistics
import time

import numpy as np
import scipy.linalg
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ge05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1200
WARMUP = 5


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


def trace_of_root_product(cov_a, cov_b):
    root = scipy.linalg.sqrtm(cov_a @ cov_b)
    return float(np.trace(np.real(root)))


def symmetric_root(cov):
    values, vectors = np.linalg.eigh(cov)
    return (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T


def trace_from_spectrum(root_a, cov_b):
    values = np.linalg.eigvalsh(root_a @ cov_b @ root_a)
    return float(np.sqrt(np.clip(values, 0, None)).sum())


class Generator(nn.Module):
    def __init__(self, latent, width):
        super().__init__()
        def up(i, o):
            return [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
        self.net = nn.Sequential(
            nn.ConvTranspose2d(latent, 8 * width, 4, bias=False), nn.BatchNorm2d(8 * width), nn.ReLU(True),
            *up(8 * width, 4 * width), *up(4 * width, 2 * width), *up(2 * width, width),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Critic(nn.Module):
    def __init__(self, width):
        super().__init__()
        def down(i, o):
            return [nn.Conv2d(i, o, 4, 2, 1), nn.LeakyReLU(0.2, True)]
        self.net = nn.Sequential(*down(3, width), *down(width, 2 * width), *down(2 * width, 4 * width),
                                 *down(4 * width, 8 * width), nn.Conv2d(8 * width, 1, 4))

    def forward(self, x):
        return self.net(x).flatten()


class FeatureNet(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 64, 5, 2, 2), nn.ReLU(True), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(True),
                                 nn.Conv2d(128, features, 3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.requires_grad_(False)

    def forward(self, x):
        return self.net(x)


class DistanceTracker:
    """Keeps the last features of generated images and compares their Gaussian with the data's."""

    def __init__(self, net, reference, window, variant):
        self.net, self.window = net, window
        self.mean, self.cov = self.moments(reference)
        self.root = symmetric_root(self.cov) if variant == "fixed" else None
        self.recent, self.values = [], []

    @staticmethod
    def moments(features):
        features = features.double()
        cov = torch.cov(features.T) + 1e-6 * torch.eye(features.shape[1], device=features.device).double()
        return features.mean(0).cpu().numpy(), cov.cpu().numpy()

    @torch.no_grad()
    def add(self, images):
        self.recent.append(self.net(images))
        del self.recent[:-self.window]

    def compute(self):
        mean, cov = self.moments(torch.cat(self.recent))
        if self.root is None:
            cross = trace_of_root_product(self.cov, cov)
        else:
            cross = trace_from_spectrum(self.root, cov)
        gap = self.mean - mean
        self.values.append(gap @ gap + np.trace(self.cov) + np.trace(cov) - 2 * cross)
        return self.values[-1]


class Adversarial:
    def __init__(self, cfg, device, variant):
        self.cfg, self.device = cfg, device
        self.g = Generator(cfg["latent"], cfg["width"]).to(device)
        self.d = Critic(cfg["width"]).to(device)
        fused = device.type == "cuda"
        self.opt_g = torch.optim.Adam(self.g.parameters(), 2e-4, betas=(0.5, 0.999), fused=fused)
        self.opt_d = torch.optim.Adam(self.d.parameters(), 2e-4, betas=(0.5, 0.999), fused=fused)
        self.real = torch.rand(cfg["pool"], 3, 64, 64, device=device) * 2 - 1
        net = FeatureNet(cfg["features"]).to(device)
        with torch.no_grad():
            reference = torch.cat([net(part) for part in self.real.split(cfg["batch"])])
        self.tracker = DistanceTracker(net, reference, cfg["window"], variant)
        self.count = 0

    def noise(self):
        return torch.randn(self.cfg["batch"], self.cfg["latent"], device=self.device)

    def update_critic(self, fake):
        pick = torch.randint(0, self.cfg["pool"], (self.cfg["batch"],), device=self.device)
        loss = F.relu(1 - self.d(self.real[pick])).mean() + F.relu(1 + self.d(fake.detach())).mean()
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()

    def update_generator(self, fake):
        loss = -self.d(fake).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()

    def step(self):
        fake = self.g(self.noise())
        self.update_critic(fake)
        self.update_generator(fake)
        self.tracker.add(fake.detach())
        self.count += 1
        if self.count % self.cfg["every"] == 0:
            self.tracker.compute()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    if device.type == "cuda":
        cfg = dict(latent=128, width=64, batch=128, pool=8192, features=256, window=16, every=8)
    else:
        cfg = dict(latent=16, width=8, batch=8, pool=64, features=32, window=4, every=2)
    run_loop(args, device, Adversarial(cfg, device, args.variant).step)


if __name__ == "__main__":
    main()
