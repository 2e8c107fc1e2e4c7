"""DDIM sampling with classifier-free guidance from a small U-Net."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def sinusoid(t, dim):
    freq = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2))
    ang = t[:, None].float() * freq
    return torch.cat([ang.sin(), ang.cos()], 1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(8, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(emb, cout)
        self.n2, self.c2 = nn.GroupNorm(8, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, e):
        h = self.c1(F.silu(self.n1(x))) + self.emb(F.silu(e))[:, :, None, None]
        return self.c2(F.silu(self.n2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, ch=64, classes=11):
        super().__init__()
        e = 4 * ch
        self.ch = ch
        self.time = nn.Sequential(nn.Linear(ch, e), nn.SiLU(), nn.Linear(e, e))
        self.label = nn.Embedding(classes, e)
        self.inp = nn.Conv2d(3, ch, 3, padding=1)
        self.d1, self.d2 = ResBlock(ch, ch, e), ResBlock(ch, 2 * ch, e)
        self.down1, self.down2 = nn.Conv2d(ch, ch, 3, 2, 1), nn.Conv2d(2 * ch, 2 * ch, 3, 2, 1)
        self.mid1, self.mid2 = ResBlock(2 * ch, 2 * ch, e), ResBlock(2 * ch, 2 * ch, e)
        self.u2, self.u1 = ResBlock(4 * ch, 2 * ch, e), ResBlock(3 * ch, ch, e)
        self.norm, self.out = nn.GroupNorm(8, ch), nn.Conv2d(ch, 3, 3, padding=1)

    def forward(self, x, t, y):
        e = self.time(sinusoid(t, self.ch)) + self.label(y)
        a = self.d1(self.inp(x), e)
        b = self.d2(self.down1(a), e)
        h = self.mid2(self.mid1(self.down2(b), e), e)
        h = self.u2(torch.cat([F.interpolate(h, scale_factor=2.0), b], 1), e)
        h = self.u1(torch.cat([F.interpolate(h, scale_factor=2.0), a], 1), e)
        return self.out(F.silu(self.norm(h)))


class Schedule:
    def __init__(self, total=1000, steps=25):
        beta = torch.linspace(1e-4, 0.02, total)
        self.alpha = torch.cumprod(1 - beta, 0)
        self.times = torch.linspace(total - 1, 0, steps).long()

    def pairs(self):
        ts = self.times.tolist()
        return list(zip(ts, ts[1:] + [-1]))

    def level(self, t):
        return self.alpha[t].item() if t >= 0 else 1.0


class Watch:
    """Guards against divergence and keeps small previews."""

    def __init__(self, every=5):
        self.every, self.previews, self.stds = every, [], []

    def __call__(self, i, x0):
        std = x0.std().item()
        self.stds.append(std)
        if not math.isfinite(std):
            raise FloatingPointError("sampling diverged")
        if i % self.every == 0:
            self.previews.append(((x0[:1] + 1) * 127.5).clamp(0, 255).to(torch.uint8).numpy().tobytes())


@torch.inference_mode()
def sample(model, sched, labels, guidance, gen, watch, on_step):
    n = len(labels)
    x = torch.randn(n, 3, 32, 32, generator=gen)
    null = torch.full_like(labels, 10)
    for i, (t, t_prev) in enumerate(sched.pairs()):
        tt = torch.full((2 * n,), t, dtype=torch.long)
        cond, free = model(torch.cat([x, x]), tt, torch.cat([labels, null])).chunk(2)
        eps = free + guidance * (cond - free)
        a, a_prev = sched.level(t), sched.level(t_prev)
        x0 = ((x - math.sqrt(1 - a) * eps) / math.sqrt(a)).clamp(-1, 1)
        eps = (x - math.sqrt(a) * x0) / math.sqrt(1 - a)
        x = math.sqrt(a_prev) * x0 + math.sqrt(1 - a_prev) * eps
        watch(i, x0)
        if on_step():
            break
    return x


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="healthy", choices=["slow", "fixed", "healthy"])
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--max-seconds", type=float, default=120)
    p.add_argument("--batch", type=int, default=4)
    args = p.parse_args()
    torch.manual_seed(0)
    model, sched, watch = UNet().eval(), Schedule(), Watch()
    gen = torch.Generator().manual_seed(3)
    times, begin = [], time.perf_counter()
    last, total = [begin], 0.0

    def on_step():
        now = time.perf_counter()
        times.append((now - last[0]) * 1e3)
        last[0] = now
        return len(times) >= args.steps or now - begin > args.max_seconds

    while len(times) < args.steps and time.perf_counter() - begin < args.max_seconds:
        labels = torch.randint(0, 10, (args.batch,), generator=gen)
        total += sample(model, sched, labels, 2.0, gen, watch, on_step).abs().mean().item()
    t = times[3:] or times
    print(json.dumps({"steps": len(times), "mean_ms": round(statistics.fmean(t), 3),
                      "median_ms": round(statistics.median(t), 3), "sum": round(total, 3),
                      "previews": len(watch.previews)}))


if __name__ == "__main__":
    main()
