"""A vector-quantised image autoencoder."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Quantizer(nn.Module):
    def __init__(self, codes, dim, product):
        super().__init__()
        self.book = nn.Embedding(codes, dim)
        self.product = product

    @torch.no_grad()
    def nearest(self, x):
        e = self.book.weight
        if self.product:
            return torch.addmm(e.pow(2).sum(1), x, e.t(), alpha=-2).argmin(1)
        return (x[:, None, :] - e[None, :, :]).pow(2).sum(-1).argmin(1)

    def forward(self, z):
        b, c, h, w = z.shape
        x = z.float().permute(0, 2, 3, 1).reshape(-1, c)
        q = self.book(self.nearest(x))
        loss = F.mse_loss(q, x.detach()) + 0.25 * F.mse_loss(x, q.detach())
        q = x + (q - x).detach()
        return q.view(b, h, w, c).permute(0, 3, 1, 2), loss


class VQAE(nn.Module):
    def __init__(self, w, dim, codes, product):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, w, 4, 2, 1), nn.ReLU(), nn.Conv2d(w, w, 4, 2, 1), nn.ReLU(),
                                 nn.Conv2d(w, w, 4, 2, 1), nn.ReLU(), nn.Conv2d(w, dim, 1))
        self.vq = Quantizer(codes, dim, product)
        self.dec = nn.Sequential(nn.Conv2d(dim, w, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(w, w, 4, 2, 1), nn.ReLU(),
                                 nn.ConvTranspose2d(w, w, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(w, 3, 4, 2, 1))

    def forward(self, x):
        q, loss = self.vq(self.enc(x))
        return self.dec(q), loss


def build(ctx):
    torch.set_float32_matmul_precision("high")
    net = VQAE(ctx.pick(256, 8), ctx.pick(64, 8), ctx.pick(4096, 32), product=not ctx.slow)
    net = net.to(ctx.device, memory_format=torch.channels_last)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-4, fused=True)
    n, side = ctx.pick(16, 2), ctx.pick(256, 16)
    pool = torch.rand(4, n, 3, side, side, device=ctx.device)

    def train_step(i):
        x = pool[i % 4].contiguous(memory_format=torch.channels_last)
        with torch.autocast(ctx.device.type, torch.bfloat16, enabled=ctx.cuda):
            y, extra = net(x)
        (F.mse_loss(y.float(), x) + extra).backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6))
