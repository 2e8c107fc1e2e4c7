"""Prefill of a mixture-of-experts model."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Experts(nn.Module):
    def __init__(self, d, ff, experts, remember):
        super().__init__()
        self.route = nn.Linear(d, experts, bias=False)
        self.up = nn.ModuleList(nn.Linear(d, ff, bias=False) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(ff, d, bias=False) for _ in range(experts))
        self.remember, self.known = remember, None

    def forward(self, x):
        gate, pick = self.route(x).softmax(-1).topk(2)
        order = pick.flatten().argsort()
        if self.remember and self.known is not None:
            counts = self.known
        else:
            counts = torch.bincount(pick.flatten(), minlength=len(self.up)).tolist()
            self.known = counts
        rows = x[order // 2].split(counts)
        out = []
        for k, r in enumerate(rows):
            if len(r):
                out.append(self.down[k](F.relu(self.up[k](r))))
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=x.device)
        y = torch.cat(out)[back].view(len(x), 2, -1)
        return x + torch.einsum("tkd,tk->td", y, gate)


def build(ctx):
    torch.set_grad_enabled(False)
    d, ff, t = ctx.pick((4096, 8192, 16384), (32, 64, 128))
    with torch.device(ctx.device):
        net = nn.Sequential(*[Experts(d, ff, 8, ctx.variant == "without") for _ in range(ctx.pick(4, 2))]).to(ctx.half).eval()
        x = torch.randn(t, d, dtype=ctx.half)

    def prefill(i):
        return net(x)

    return Work(prefill, items=t)


if __name__ == "__main__":
    main(build, steps=(200, 6), variants=("healthy", "without"))
