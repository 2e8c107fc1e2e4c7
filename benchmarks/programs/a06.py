"""Trains a tagger whose corpus is held in memory as plain records.

TRUTH: every fourth step `gc.collect()` runs in train_step ("tidy"); the corpus is more than a million Python lists that the
collector must walk each time, which takes tens to more than a hundred ms on the host while the device stands idle (periodic
stall). Fix: drop the call (nothing cyclic is to be freed), or gc.freeze() after loading.
"""
import gc

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main
from nets import EncoderBlock


class Tagger(nn.Module):
    def __init__(self, vocab, dim, depth, tags):
        super().__init__()
        self.word = nn.Embedding(vocab, dim)
        self.blocks = nn.Sequential(*[EncoderBlock(dim, 8) for _ in range(depth)])
        self.out = nn.Linear(dim, tags)

    def forward(self, ids):
        return self.out(self.blocks(self.word(ids)))


def build(ctx):
    total, n, t = ctx.pick(700_000, 2000), ctx.pick(64, 4), 16
    vocab = ctx.pick(30000, 200)
    corpus = [[i, [i % vocab, (i * 31) % vocab, (i * 17) % vocab, (i * 7) % vocab], [i % 9, (i // 3) % 9, (i // 5) % 9, (i // 7) % 9]] for i in range(total)]
    net = Tagger(vocab, ctx.pick(1024, 32), ctx.pick(8, 2), 9).to(ctx.device, ctx.half)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    def batch(i):
        ids, tags = [], []
        for b in range(n):
            rec = corpus[((i * n + b) * 104729) % total]
            ids.append(rec[1] * (t // 4))
            tags.append(rec[2] * (t // 4))
        return torch.tensor(ids).repeat(1, 8), torch.tensor(tags).repeat(1, 8)

    def train_step(i):
        ids, tags = batch(i)
        y = net(ids.to(ctx.device, non_blocking=True))
        F.cross_entropy(y.flatten(0, 1).float(), tags.to(ctx.device, non_blocking=True).flatten()).backward()
        opt.step()
        opt.zero_grad()
        if ctx.slow and i % 4 == 3:
            gc.collect()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(80, 8), warmup=8)
