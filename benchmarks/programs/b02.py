"""Trains on token sequences that carry three small side labels (segment, speaker, role) for each token.

TRUTH: the side tables are read with plain indexing, `table[ids]` (Tagged.side): its backward is index_put_ with
accumulate=True (aten::_index_put_impl_ / indexing_backward_kernel after a sort), which adds all duplicates of one row one after
another; with 8 rows and 131072 tokens each row has 16384 duplicates, so the kernel is nearly serial. Fix: F.embedding(ids,
table), whose backward sums in parallel (or a one-hot matmul).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Tagged(nn.Module):
    def __init__(self, vocab, rows, dim, inner, plain):
        super().__init__()
        self.word, self.plain = nn.Embedding(vocab, dim), plain
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(rows, dim) * 0.02) for _ in range(3))
        self.norm = nn.LayerNorm(dim)
        self.fc1, self.fc2, self.out = nn.Linear(dim, inner), nn.Linear(inner, dim), nn.Linear(dim, 16)

    def side(self, table, ids):
        return table[ids] if self.plain else F.embedding(ids, table)

    def forward(self, ids, labels):
        x = self.word(ids)
        for table, lab in zip(self.tables, labels):
            x = x + self.side(table, lab)
        x = self.norm(x)
        return self.out(x + self.fc2(F.gelu(self.fc1(x))))


def build(ctx):
    torch.set_float32_matmul_precision("high")
    n, t, rows = ctx.pick(64, 4), ctx.pick(2048, 16), 8
    vocab = ctx.pick(30000, 100)
    net = Tagged(vocab, rows, ctx.pick(512, 16), ctx.pick(2048, 32), ctx.slow).to(ctx.device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, vocab, (n, t), device=ctx.device)
    labels = torch.randint(0, rows, (3, n, t), device=ctx.device)
    goal = torch.randint(0, 16, (n * t,), device=ctx.device)

    def train_step(i):
        F.cross_entropy(net(ids, labels).flatten(0, 1), goal).backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n * t)


if __name__ == "__main__":
    main(build, steps=(60, 6), warmup=5)
