"""Latent diffusion: pretrained image encoder in front of a small denoiser."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_e import ResBlock, StepTimes, base_parser


class Encoder(nn.Module):
    """Image -> latent, 8x smaller (stands in for the released autoencoder)."""

    def __init__(self, ch, latent=4):
        super().__init__()
        self.stem = nn.Conv2d(3, ch, 3, padding=1)
        self.stages = nn.ModuleList()
        for mult_in, mult_out in ((1, 1), (1, 2), (2, 4)):
            self.stages.append(nn.Sequential(
                ResBlock(ch * mult_in, ch * mult_out),
                nn.Conv2d(ch * mult_out, ch * mult_out, 3, stride=2, padding=1)))
        self.out = nn.Conv2d(ch * 4, 2 * latent, 3, padding=1)

    def forward(self, x):
        h = self.stem(x)
        for s in self.stages:
            h = s(h)
        mean, logvar = self.out(h).float().chunk(2, dim=1)
        return mean + torch.randn_like(mean) * torch.exp(0.5 * logvar.clamp(-10, 10))


class Denoiser(nn.Module):
    def __init__(self, ch, depth, latent=4, temb=256):
        super().__init__()
        self.temb_dim = temb
        self.temb = nn.Sequential(nn.Linear(temb, temb), nn.SiLU(), nn.Linear(temb, temb))
        self.inp = nn.Conv2d(latent, ch, 3, padding=1)
        self.blocks = nn.ModuleList(ResBlock(ch, ch, temb=temb) for _ in range(depth))
        self.out = nn.Conv2d(ch, latent, 3, padding=1)

    def embed(self, t):
        half = self.temb_dim // 2
        f = torch.exp(-math.log(1e4) * torch.arange(half, device=t.device) / half)
        a = t[:, None].float() * f[None]
        return self.temb(torch.cat([a.sin(), a.cos()], dim=1))

    def forward(self, z, t):
        e = self.embed(t)
        h = self.inp(z)
        for b in self.blocks:
            h = b(h, e)
        return self.out(h)


class LatentDiffusion:
    def __init__(self, args):
        self.dev = torch.device(args.device)
        tiny = args.tiny
        self.encoder = Encoder(8 if tiny else 64)
        self.unet = Denoiser(8 if tiny else 256, 1 if tiny else 6)
        self.encoder.to(self.dev, memory_format=torch.channels_last).eval()
        self.unet.to(self.dev, memory_format=torch.channels_last)
        if args.variant == "fixed":
            self.encoder.requires_grad_(False)
        self.opt = torch.optim.AdamW(self.unet.parameters(), lr=1e-4)
        beta = torch.linspace(1e-4, 0.02, 1000, device=self.dev)
        self.abar = torch.cumprod(1 - beta, 0)

    def training_step(self, images):
        b = images.shape[0]
        with torch.autocast(self.dev.type, dtype=torch.bfloat16):
            z = self.encoder(images) * 0.18215
            t = torch.randint(1000, (b,), device=self.dev)
            noise = torch.randn_like(z)
            a = self.abar[t].view(-1, 1, 1, 1)
            pred = self.unet(a.sqrt() * z + (1 - a).sqrt() * noise, t)
        loss = F.mse_loss(pred.float(), noise)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.unet.parameters(), 1.0)
        self.opt.step()
        return loss.detach()


def main():
    args = base_parser().parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    ldm = LatentDiffusion(args)
    b, size = (2, 32) if args.tiny else (32, 256)
    batches = [torch.randn(b, 3, size, size, device=ldm.dev).to(memory_format=torch.channels_last)
               for _ in range(4)]
    warm = 1 if args.tiny else 5
    times, running = StepTimes(args.device), torch.zeros((), device=ldm.dev)
    for step in range(args.steps + warm):
        if step == warm:
            times.begin()
        running.lerp_(ldm.training_step(batches[step % 4]), 0.05)
        if step % 50 == 49:
            print("step %d  ema loss %.4f" % (step, running.item()), flush=True)
        if step >= warm:
            times.tick()
    times.finish()


if __name__ == "__main__":
    main()
