"""Fine-tuning a text encoder for sentence pairs."""
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_c import Block
from common import Work, main


class PairModel(nn.Module):
    def __init__(self, vocab, d, heads, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d, heads, causal=False) for _ in range(layers))
        self.out = nn.Linear(d, 2)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        return self.out(x[:, 0])


def build(ctx):
    vocab = ctx.pick(30000, 100)
    net = PairModel(vocab, ctx.pick(1024, 32), ctx.pick(16, 2), ctx.pick(6, 1)).to(ctx.device, ctx.half)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-5, fused=True)
    n, t = ctx.pick((16, 384), (4, 16))
    pool = torch.randint(0, vocab, (8, n, t), device=ctx.device)
    y = torch.randint(0, 2, (n,), device=ctx.device)
    saving = (lambda: torch.autograd.graph.save_on_cpu(pin_memory=ctx.cuda)) if ctx.slow else contextlib.nullcontext

    def train_step(i):
        with saving():
            loss = F.cross_entropy(net(pool[i % 8]).float(), y)
        loss.backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6))
