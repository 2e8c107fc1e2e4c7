"""Depth estimation, trained on the hardest pixels of each batch."""
import torch
import torch.nn as nn

from common import Work, main


class Depth(nn.Module):
    def __init__(self, w, deep):
        super().__init__()
        self.stem = nn.Conv2d(4, w, 4, stride=2, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(w, w, 3, padding=1) for _ in range(deep))
        self.out, self.up = nn.Conv2d(w, 4, 1), nn.PixelShuffle(2)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for c in self.body:
            x = torch.relu(c(x))
        return self.up(self.out(x))[:, 0]


class HardPixels:
    """Mean error of the worst part of all pixels."""

    def __init__(self, part, exact):
        self.part, self.exact = part, exact

    def bound(self, err):
        flat = err.detach().flatten()
        keep = int(flat.numel() * self.part)
        if self.exact:
            return flat.kthvalue(flat.numel() - keep + 1).values
        return flat.topk(keep, sorted=False).values.min()

    def __call__(self, pred, depth):
        err = (pred.float() - depth).abs()
        hard = err >= self.bound(err)
        return (err * hard).sum() / hard.sum()


def build(ctx):
    n, side, w, deep = ctx.pick((16, 512, 128, 6), (2, 32, 8, 2))
    like = dict(memory_format=torch.channels_last)
    net = Depth(w, deep).to(ctx.device, ctx.half).to(**like)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    criterion = HardPixels(1 / 16, ctx.slow)
    images = [torch.randn(n, 4, side, side, device=ctx.device, dtype=ctx.half).to(**like) for _ in range(2)]
    depths = [torch.rand(n, side, side, device=ctx.device) * 4 for _ in range(2)]

    def train_step(i):
        loss = criterion(net(images[i % 2]), depths[i % 2])
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6))
