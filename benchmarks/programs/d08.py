"""Ranking model with a running area under the ROC curve."""
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class WindowAuc:
    """Over the last `keep` batches."""

    def __init__(self, keep):
        self.seen = deque(maxlen=keep)

    def add(self, score, label):
        self.seen.append((score, label))

    def value(self):
        score, label = (torch.cat(c) for c in zip(*self.seen))
        hit = label[score.argsort()].float()
        below = (1 - hit).cumsum(0)
        pos = hit.sum()
        return (hit * below).sum() / (pos * (len(hit) - pos)).clamp_min(1)


class BinnedAuc:
    """Scores fall into bins; counts of the batches leave when they are `keep` old."""

    def __init__(self, keep, bins, device):
        self.bins, self.total = bins, torch.zeros(2 * bins, device=device)
        self.parts, self.keep = deque(), keep

    def add(self, score, label):
        at = (score * (self.bins - 1)).long() + label * self.bins
        part = torch.zeros_like(self.total).index_add_(0, at, torch.ones_like(score))
        self.parts.append(part)
        self.total += part
        if len(self.parts) > self.keep:
            self.total -= self.parts.popleft()

    def value(self):
        neg, pos = self.total.view(2, -1)
        return (pos * (neg.cumsum(0) - neg / 2)).sum() / (pos.sum() * neg.sum()).clamp_min(1)


def build(ctx):
    n, d, h, keep = ctx.pick((65536, 1024, 2048, 512), (64, 16, 32, 8))
    with torch.device(ctx.device):
        net = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 1)).to(ctx.half)
        rows = torch.randn(4, n, d, dtype=ctx.half)
        clicks = torch.randint(0, 2, (4, n))
        history = torch.zeros(1024)
    auc = WindowAuc(keep) if ctx.slow else BinnedAuc(keep, 4096, ctx.device)
    for _ in range(keep):  # the window is full from the start
        auc.add(torch.rand(n, device=ctx.device), clicks[0])
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def train_step(i):
        y = clicks[i % 4]
        logit = net(rows[i % 4]).float().squeeze(1)
        loss = F.binary_cross_entropy_with_logits(logit, y.float())
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        auc.add(logit.detach().sigmoid(), y)
        history[i % 1024] = auc.value()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6))
