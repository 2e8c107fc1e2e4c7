"""Image GAN at 128x128: residual generator and discriminator, hinge loss, EMA of the generator."""
import argparse
import copy
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "o04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 100
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


class UpBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(c_in), nn.BatchNorm2d(c_out)
        self.conv1 = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.skip = nn.Conv2d(c_in, c_out, 1, bias=False)

    def forward(self, x):
        h = F.interpolate(F.relu(self.bn1(x)), scale_factor=2, mode="nearest")
        h = self.conv2(F.relu(self.bn2(self.conv1(h))))
        return h + F.interpolate(self.skip(x), scale_factor=2, mode="nearest")


class DownBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, padding=1)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, stride=2, padding=1)
        self.skip = nn.Conv2d(c_in, c_out, 1, bias=False)

    def forward(self, x):
        h = self.conv2(F.leaky_relu(self.conv1(F.leaky_relu(x, 0.2)), 0.2))
        return h + self.skip(F.avg_pool2d(x, 2))


class Generator(nn.Module):
    def __init__(self, z_dim, channels):
        super().__init__()
        self.c0 = channels[0]
        self.fc = nn.Linear(z_dim, self.c0 * 16)
        self.blocks = nn.Sequential(*[UpBlock(a, b) for a, b in zip(channels[:-1], channels[1:])])
        self.bn = nn.BatchNorm2d(channels[-1])
        self.rgb = nn.Conv2d(channels[-1], 3, 3, padding=1)

    def forward(self, z):
        x = self.fc(z).view(-1, self.c0, 4, 4).contiguous(memory_format=torch.channels_last)
        return torch.tanh(self.rgb(F.relu(self.bn(self.blocks(x)))))


class Discriminator(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.stem = nn.Conv2d(3, channels[0], 3, padding=1)
        self.blocks = nn.Sequential(*[DownBlock(a, b) for a, b in zip(channels[:-1], channels[1:])])
        self.fc = nn.Linear(channels[-1], 1)

    def forward(self, x):
        return self.fc(F.leaky_relu(self.blocks(self.stem(x)), 0.2).mean((2, 3)))


def draw_fakes(gen, z):
    return gen(z)


@torch.no_grad()
def draw_constant_fakes(gen, z):
    return gen(z)


class GANTrainer:
    def __init__(self, gen, disc, z_dim, batch, device, draw):
        self.gen, self.disc, self.z_dim, self.batch, self.device, self.draw = gen, disc, z_dim, batch, device, draw
        fused = device.type == "cuda"
        self.ema = copy.deepcopy(gen).requires_grad_(False)
        self.opt_g = torch.optim.Adam(gen.parameters(), lr=1e-4, betas=(0.0, 0.99), fused=fused)
        self.opt_d = torch.optim.Adam(disc.parameters(), lr=4e-4, betas=(0.0, 0.99), fused=fused)
        self.amp = torch.autocast(device.type, dtype=torch.bfloat16)

    def latent(self):
        return torch.randn(self.batch, self.z_dim, device=self.device)

    def discriminator_step(self, real):
        self.disc.requires_grad_(True)
        self.opt_d.zero_grad(set_to_none=True)
        with self.amp:
            fake = self.draw(self.gen, self.latent())
            loss = F.relu(1 - self.disc(real)).mean() + F.relu(1 + self.disc(fake)).mean()
        loss.backward()
        self.opt_d.step()

    def generator_step(self):
        self.disc.requires_grad_(False)
        self.opt_g.zero_grad(set_to_none=True)
        with self.amp:
            loss = -self.disc(self.gen(self.latent())).mean()
        loss.backward()
        self.opt_g.step()

    @torch.no_grad()
    def update_ema(self, decay=0.999):
        torch._foreach_lerp_(list(self.ema.parameters()), list(self.gen.parameters()), 1 - decay)

    def step(self, real):
        self.discriminator_step(real)
        self.generator_step()
        self.update_ema()


DRAW = {"slow": draw_fakes, "fixed": draw_constant_fakes}


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    if device.type == "cuda":
        batch, z_dim, g_ch, d_ch = 64, 256, [1024, 1024, 512, 512, 256, 128], [64, 128, 256, 512, 512, 1024]
    else:
        batch, z_dim, g_ch, d_ch = 2, 16, [16, 8, 8], [8, 8, 16]
    side = 4 * 2 ** (len(g_ch) - 1)
    gen = Generator(z_dim, g_ch).to(device, memory_format=torch.channels_last)
    disc = Discriminator(d_ch).to(device, memory_format=torch.channels_last)
    trainer = GANTrainer(gen, disc, z_dim, batch, device, DRAW[args.variant])
    pool = torch.randn(4 * batch, 3, side, side, device=device).clamp_(-1, 1).contiguous(memory_format=torch.channels_last)
    cursor = {"i": 0}

    def step():
        i = cursor["i"] % 4
        cursor["i"] += 1
        trainer.step(pool[i * batch:(i + 1) * batch])

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
