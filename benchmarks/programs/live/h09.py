"""Binary-organ segmentation with a small U-Net and on-device augmentation."""

import argparse
import contextlib
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PIXEL_MEAN = np.array([0.485, 0.456, 0.406])
PIXEL_STD = np.array([0.229, 0.224, 0.225])


class Augment:
    """Normalise, elastic warp + affine, blur, noise. Everything follows the dtype of the pixels."""

    def __init__(self, device, variant, size, sigma=6.0):
        dtype = None if variant == "slow" else torch.float32
        self.mean = torch.as_tensor(PIXEL_MEAN, dtype=dtype, device=device).view(1, 3, 1, 1)
        self.std = torch.as_tensor(PIXEL_STD, dtype=dtype, device=device).view(1, 3, 1, 1)
        self.size = size
        taps = torch.arange(-12, 13, dtype=torch.float32, device=device)
        line = torch.exp(-(taps**2) / (2 * sigma**2))
        self.line = line / line.sum()

    def smooth(self, x, line):
        c, n = x.shape[1], len(line)
        wide = line.to(x).view(1, 1, 1, n).repeat(c, 1, 1, 1)
        x = F.conv2d(x, wide, padding=(0, n // 2), groups=c)
        return F.conv2d(x, wide.transpose(2, 3), padding=(n // 2, 0), groups=c)

    def field(self, x):
        b = x.shape[0]
        ang = (torch.rand(b, device=x.device) - 0.5) * 0.6
        scale = 1 + (torch.rand(b, device=x.device) - 0.5) * 0.3
        zero = torch.zeros_like(ang)
        theta = torch.stack(
            [
                torch.stack([ang.cos() * scale, -ang.sin(), zero], 1),
                torch.stack([ang.sin(), ang.cos() * scale, zero], 1),
            ],
            1,
        ).to(x.dtype)
        base = F.affine_grid(theta, list(x.shape), align_corners=False)
        wobble = torch.rand(b, 2, self.size, self.size, device=x.device).to(x.dtype) - 0.5
        return base + 0.4 * self.smooth(wobble, self.line).permute(0, 2, 3, 1)

    @torch.no_grad()
    def __call__(self, images, masks):
        x = (images / 255.0 - self.mean) / self.std
        gain = 1 + (torch.rand(x.shape[0], 3, 1, 1, device=x.device) - 0.5) * 0.4
        x = x * gain
        grid = self.field(x)
        x = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
        y = F.grid_sample(masks[:, None].to(x.dtype), grid, mode="nearest", align_corners=False)
        soft = self.smooth(x, self.line[8:17] / self.line[8:17].sum())
        blend = torch.rand(x.shape[0], 1, 1, 1, device=x.device)
        x = x * blend + soft * (1 - blend)
        return x.float(), y[:, 0].long()


def double_conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(inplace=True),
        nn.Conv2d(o, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, base=16, classes=2):
        super().__init__()
        w = [base, base * 2, base * 4, base * 8]
        self.down = nn.ModuleList([double_conv(i, o) for i, o in zip([3] + w[:-1], w)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(w[:-1], w[1:])])
        self.merge = nn.ModuleList([double_conv(2 * a, a) for a in w[:-1]])
        self.out = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for i in reversed(range(len(self.up))):
            x = self.merge[i](torch.cat([self.up[i](x), skips[i]], 1))
        return self.out(x)


def synthetic_scans(count, size, device):
    yy, xx = torch.meshgrid(
        torch.arange(size, device=device), torch.arange(size, device=device), indexing="ij"
    )
    c = torch.rand(count, 2, device=device) * size * 0.5 + size * 0.25
    r = (torch.rand(count, device=device) * 0.15 + 0.08) * size
    masks = ((yy - c[:, 0, None, None]) ** 2 + (xx - c[:, 1, None, None]) ** 2) < r[
        :, None, None
    ] ** 2
    noise = torch.randint(0, 120, (count, 3, size, size), device=device, dtype=torch.uint8)
    return noise + masks[:, None].to(torch.uint8) * 90, masks.to(torch.uint8)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=450)
    ap.add_argument("--max-seconds", type=float, default=36)
    args = ap.parse_args()
    torch.manual_seed(0)
    gpu = args.device == "cuda"
    count, size, batch = (256, 512, 64) if gpu else (16, 64, 4)
    images, masks = synthetic_scans(count, size, args.device)
    augment = Augment(args.device, args.variant, size)
    net = UNet(16).to(args.device, memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    amp = torch.autocast("cuda", torch.bfloat16) if gpu else contextlib.nullcontext()
    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        pick = torch.randint(0, count, (batch,), device=args.device)
        x, y = augment(images[pick], masks[pick])
        x = x.contiguous(memory_format=torch.channels_last)
        with amp:
            logits = net(x)
            loss = F.cross_entropy(logits, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"iter {step} loss {loss.item():.4f}", flush=True)
        if time.perf_counter() - t0 > args.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - t0
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


if __name__ == "__main__":
    main()
