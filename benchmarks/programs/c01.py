"""Language model training on documents of many lengths."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_c import Block
from common import Work, main


class LM(nn.Module):
    def __init__(self, vocab, d, heads, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def build(ctx):
    vocab = ctx.pick(8192, 64)
    with torch.device(ctx.device):
        net = LM(vocab, ctx.pick(4096, 32), ctx.pick(32, 2), ctx.pick(4, 1)).to(ctx.half)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    unit, n = ctx.pick(256, 8), ctx.pick(4, 2)
    rng = random.Random(3)
    lengths = [unit * rng.randint(3, 12) for _ in range(4096)]
    corpus = torch.randint(0, vocab, (n, unit * 13), device=ctx.device)

    def train_step(i):
        t = lengths[i % len(lengths)]
        ids = corpus[:, : t + 1]
        logits = net(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6), variants=("healthy",))
