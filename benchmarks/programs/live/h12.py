"""Four-fold image super-resolution with pixel and deep-feature losses."""

import argparse
import contextlib
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

PLAN = [64, 64, "M", 128, 128, "M", 256, 256, 256, 256, "M", 512, 512, 512, 512]


@dataclass
class Settings:
    device: str = "cuda"
    variant: str = "slow"
    steps: int = 550
    max_seconds: float = 36
    patch: int = 256
    batch: int = 48
    blocks: int = 8
    shrink: int = 1


class FeatureNet(nn.Module):
    """Convolutional feature extractor whose maps define the perceptual distance."""

    def __init__(self, shrink):
        super().__init__()
        layers, c = [], 3
        for item in PLAN:
            if item == "M":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(c, item // shrink, 3, padding=1), nn.ReLU()]
                c = item // shrink
        self.body = nn.Sequential(*layers)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)
                nn.init.zeros_(m.bias)
        self.register_buffer("shift", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("scale", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))

    def forward(self, img):
        return self.body((img - self.shift) / self.scale)


def build_feature_net(cfg):
    net = FeatureNet(cfg.shrink).to(cfg.device, memory_format=torch.channels_last).eval()
    if cfg.variant == "fixed":
        net.requires_grad_(False)
    return net


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return x + 0.1 * self.b(F.relu(self.a(x)))


class Generator(nn.Module):
    def __init__(self, blocks, c):
        super().__init__()
        self.head = nn.Conv2d(3, c, 3, padding=1)
        self.body = nn.Sequential(*[Residual(c) for _ in range(blocks)])
        self.tail = nn.Sequential(
            nn.Conv2d(c, 4 * c, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(c, 4 * c, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Conv2d(c, 3, 3, padding=1),
        )

    def forward(self, x):
        h = self.head(x)
        up = F.interpolate(x, scale_factor=4, mode="bilinear", align_corners=False)
        return up + self.tail(h + self.body(h))


def patches(cfg):
    g = torch.Generator(device=cfg.device).manual_seed(3)
    pool = torch.rand(
        4 * cfg.batch, 3, cfg.patch // 4, cfg.patch // 4, generator=g, device=cfg.device
    )
    pool = F.interpolate(pool, size=cfg.patch, mode="bicubic", align_corners=False).clamp(0, 1)
    while True:
        rows = torch.randint(0, len(pool), (cfg.batch,), generator=g, device=cfg.device)
        hr = pool[rows].contiguous(memory_format=torch.channels_last)
        yield F.avg_pool2d(hr, 4), hr


def train(cfg):
    torch.manual_seed(0)
    gpu = cfg.device == "cuda"
    features = build_feature_net(cfg)
    gen = Generator(cfg.blocks, 64 // cfg.shrink).to(cfg.device, memory_format=torch.channels_last)
    opt = torch.optim.Adam(gen.parameters(), lr=2e-4, fused=gpu)
    amp = (lambda: torch.autocast("cuda", torch.bfloat16)) if gpu else contextlib.nullcontext
    t0, step = time.perf_counter(), 0
    for lr_img, hr_img in patches(cfg):
        with amp():
            sr = gen(lr_img)
            pixel = F.l1_loss(sr, hr_img)
            deep = F.mse_loss(features(sr), features(hr_img))
            loss = pixel + 0.05 * deep
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        step += 1
        if step % 50 == 0:
            print(f"step {step} pixel {pixel.item():.4f} deep {deep.item():.4f}", flush=True)
        if step >= cfg.steps or time.perf_counter() - t0 > cfg.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - t0
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=550)
    ap.add_argument("--max-seconds", type=float, default=36)
    ns = ap.parse_args()
    cfg = Settings(ns.device, ns.variant, ns.steps, ns.max_seconds)
    if cfg.device != "cuda":
        cfg.patch, cfg.batch, cfg.blocks, cfg.shrink = 32, 2, 2, 8
    train(cfg)
