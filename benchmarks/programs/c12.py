"""Semantic segmentation with a running mean IoU."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class SegNet(nn.Module):
    def __init__(self, w, depth, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, w, 8, 8), nn.ReLU())
        self.body = nn.ModuleList(nn.Sequential(nn.Conv2d(w, w, 3, padding=1), nn.ReLU(), nn.Conv2d(w, w, 3, padding=1)) for _ in range(depth))
        self.head = nn.Conv2d(w, classes, 1)

    def forward(self, x):
        h = self.stem(x)
        for b in self.body:
            h = h + b(h)
        return self.head(h)


class MeanIoU:
    def __init__(self, classes, device, table):
        self.classes, self.table = classes, table
        self.inter = torch.zeros(classes, device=device)
        self.union = torch.zeros(classes, device=device)

    def update(self, pred, gt):
        if self.table:
            m = torch.bincount(gt.flatten() * self.classes + pred.flatten(), minlength=self.classes**2).view(self.classes, -1)
            both = m.diagonal()
            self.inter += both
            self.union += m.sum(0) + m.sum(1) - both
            return
        for c in range(self.classes):
            p, g = pred == c, gt == c
            self.inter[c] += (p & g).sum()
            self.union[c] += (p | g).sum()

    def value(self):
        return (self.inter / self.union.clamp(min=1)).mean()


def build(ctx):
    classes, w, n, side = ctx.pick((150, 512, 8, 512), (6, 8, 2, 32))
    net = SegNet(w, ctx.pick(4, 1), classes).to(ctx.device, memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    x = torch.rand(n, 3, side, side, device=ctx.device).contiguous(memory_format=torch.channels_last)
    gt = torch.randint(0, classes, (n, side, side), device=ctx.device)
    score = MeanIoU(classes, ctx.device, table=not ctx.slow)

    def train_step(i):
        with torch.autocast(ctx.device.type, torch.bfloat16, enabled=ctx.cuda):
            logits = net(x)
            loss = F.cross_entropy(logits, gt[:, ::8, ::8])
        loss.backward()
        opt.step()
        opt.zero_grad()
        pred = logits.detach().argmax(1).repeat_interleave(8, 1).repeat_interleave(8, 2)
        score.update(pred, gt)
        if i % 100 == 99:
            print(f"step {i} mIoU {score.value():.4f}", flush=True)

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6))
