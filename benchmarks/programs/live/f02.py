"""Denoising diffusion training on 64x64 images, small U-Net."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_f import Meter, parse, torch_sync


def time_features(t, dim):
    freqs = torch.exp(-math.log(10000.0) * torch.arange(dim // 2, device=t.device) / (dim // 2))
    a = t[:, None].float() * freqs[None]
    return torch.cat([a.sin(), a.cos()], dim=1)


class Res(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.n1 = nn.GroupNorm(8, cin)
        self.c1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.emb = nn.Linear(tdim, cout)
        self.n2 = nn.GroupNorm(8, cout)
        self.c2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, e):
        h = self.c1(F.silu(self.n1(x)))
        h = h + self.emb(e)[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))


class UNet(nn.Module):
    def __init__(self, ch=64, tdim=128):
        super().__init__()
        self.tdim = tdim
        self.time = nn.Sequential(nn.Linear(tdim, tdim), nn.SiLU(), nn.Linear(tdim, tdim))
        self.inp = nn.Conv2d(3, ch, 3, padding=1)
        self.d1 = Res(ch, ch, tdim)
        self.d2 = Res(ch, ch * 2, tdim)
        self.mid = Res(ch * 2, ch * 2, tdim)
        self.u2 = Res(ch * 4, ch, tdim)
        self.u1 = Res(ch * 2, ch, tdim)
        self.out = nn.Conv2d(ch, 3, 3, padding=1)

    def forward(self, x, t):
        e = self.time(time_features(t, self.tdim))
        a = self.d1(self.inp(x), e)
        b = self.d2(F.avg_pool2d(a, 2), e)
        m = self.mid(F.avg_pool2d(b, 2), e)
        m = F.interpolate(m, scale_factor=2.0, mode="nearest")
        u = self.u2(torch.cat([m, b], 1), e)
        u = F.interpolate(u, scale_factor=2.0, mode="nearest")
        return self.out(self.u1(torch.cat([u, a], 1), e))


class Trainer:
    def __init__(self, model, device, limit, early):
        self.model = model
        self.device = device
        self.limit = limit
        self.early = early
        self.opt = torch.optim.AdamW(model.parameters(), lr=2e-4)
        betas = torch.linspace(1e-4, 0.02, 1000, device=device)
        self.alpha_bar = torch.cumprod(1 - betas, 0)
        if early:
            self.limit_gradients()

    def limit_gradients(self):
        for p in self.model.parameters():
            p.register_hook(lambda g: torch.clamp(g, -self.limit, self.limit))

    def step(self, x0):
        t = torch.randint(0, 1000, (x0.shape[0],), device=self.device)
        noise = torch.randn_like(x0)
        ab = self.alpha_bar[t][:, None, None, None]
        xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            pred = self.model(xt, t)
        loss = F.mse_loss(pred.float(), noise)
        self.opt.zero_grad(set_to_none=True)
        if not self.early:
            self.limit_gradients()
        loss.backward()
        self.opt.step()
        return loss.detach()


def main():
    args = parse(["slow", "fixed"])
    torch.manual_seed(1)
    device = torch.device(args.device)
    batch, size, ch = (2, 16, 16) if args.tiny else (16, 64, 64)
    model = UNet(ch).to(device)
    trainer = Trainer(model, device, limit=1.0, early=args.variant == "fixed")
    pool = torch.rand(256 if not args.tiny else 8, 3, size, size, device=device) * 2 - 1
    running = torch.zeros((), device=device)
    for _ in range(3):
        trainer.step(pool[:batch])
    meter = Meter(torch_sync(device), budget_s=9.0)
    for i in meter.loop(args.steps):
        start = (i * batch) % (len(pool) - batch + 1)
        running.mul_(0.98).add_(trainer.step(pool[start:start + batch]), alpha=0.02)
        if (i + 1) % 80 == 0:
            print(f"step {i + 1}: running loss {running.item():.4f}")
    meter.report()


if __name__ == "__main__":
    main()
