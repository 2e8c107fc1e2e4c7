"""Training of an image autoencoder whose reconstructions are judged by a feature network."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ge10"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 900
WARMUP = 6


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


def group_norm(channels):
    return nn.GroupNorm(min(32, channels), channels)


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.body = nn.Sequential(group_norm(inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1),
                                  group_norm(outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x):
        return self.skip(x) + self.body(x)


class Encoder(nn.Module):
    def __init__(self, width, latent):
        super().__init__()
        layers, channels = [nn.Conv2d(3, width, 4, 4)], width
        for factor in (2, 4):
            layers += [Residual(channels, factor * width), nn.Conv2d(factor * width, factor * width, 3, 2, 1)]
            channels = factor * width
        self.net = nn.Sequential(*layers, group_norm(channels), nn.SiLU(), nn.Conv2d(channels, 2 * latent, 3, padding=1))

    def forward(self, x):
        mean, logvar = self.net(x).float().chunk(2, dim=1)
        return mean, logvar.clamp(-20, 10)


class Decoder(nn.Module):
    def __init__(self, width, latent):
        super().__init__()
        channels = 4 * width
        layers = [nn.Conv2d(latent, channels, 3, padding=1)]
        for factor in (2, 1):
            layers += [Residual(channels, factor * width), nn.Upsample(scale_factor=2, mode="nearest"),
                       nn.Conv2d(factor * width, factor * width, 3, padding=1)]
            channels = factor * width
        self.net = nn.Sequential(*layers, group_norm(channels), nn.SiLU(), nn.Conv2d(channels, 48, 3, padding=1),
                                 nn.PixelShuffle(4))

    def forward(self, z):
        return self.net(z)


class FeatureNetwork(nn.Module):
    """Sixteen-layer convolutional trunk; returns the activations before each reduction."""

    PLAN = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))

    def __init__(self, scale=1):
        super().__init__()
        self.stages, channels = nn.ModuleList(), 3
        for outputs, depth in self.PLAN:
            layers = []
            for _ in range(depth):
                layers += [nn.Conv2d(channels, outputs // scale, 3, padding=1), nn.ReLU(inplace=True)]
                channels = outputs // scale
            self.stages.append(nn.Sequential(*layers))

    def forward(self, x):
        taps = []
        for i, stage in enumerate(self.stages):
            x = stage(F.max_pool2d(x, 2) if i else x)
            taps.append(x)
        return taps


class PerceptualDistance(nn.Module):
    def __init__(self, scale, trainable):
        super().__init__()
        self.net = FeatureNetwork(scale).eval()
        for p in self.net.parameters():
            p.requires_grad_(trainable)
        self.register_buffer("shift", torch.tensor([-0.03, -0.088, -0.188]).view(1, 3, 1, 1))
        self.register_buffer("scale", torch.tensor([0.458, 0.448, 0.45]).view(1, 3, 1, 1))

    def forward(self, prediction, target):
        total = 0.0
        a = self.net((prediction - self.shift) / self.scale)
        b = self.net((target - self.shift) / self.scale)
        for x, y in zip(a, b):
            x, y = F.normalize(x, dim=1), F.normalize(y, dim=1)
            total = total + (x - y).square().sum(1).mean()
        return total


class AutoencoderTrainer:
    def __init__(self, cfg, device, variant):
        self.cfg, self.device = cfg, device
        layout = torch.channels_last
        self.encoder = Encoder(cfg["width"], 4).to(device, memory_format=layout)
        self.decoder = Decoder(cfg["width"], 4).to(device, memory_format=layout)
        self.distance = PerceptualDistance(cfg["scale"], trainable=variant == "slow").to(device, memory_format=layout)
        self.parameters = [*self.encoder.parameters(), *self.decoder.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4, fused=device.type == "cuda")
        self.pool = torch.rand(cfg["pool"], 3, cfg["size"], cfg["size"], device=device).mul_(2).sub_(1)
        self.pool = self.pool.contiguous(memory_format=layout)

    def objective(self, images):
        mean, logvar = self.encoder(images)
        z = mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)
        output = self.decoder(z)
        kl = 0.5 * (mean.square() + logvar.exp() - 1 - logvar).mean()
        return F.l1_loss(output.float(), images) + self.distance(output, images) + 1e-6 * kl

    def step(self):
        pick = torch.randint(0, self.cfg["pool"], (self.cfg["batch"],), device=self.device)
        images = self.pool[pick]
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = self.objective(images)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    if device.type == "cuda":
        cfg = dict(width=96, scale=1, batch=20, size=256, pool=256)
    else:
        cfg = dict(width=16, scale=8, batch=1, size=64, pool=4)
    run_loop(args, device, AutoencoderTrainer(cfg, device, args.variant).step)


if __name__ == "__main__":
    main()
