"""Masked language modelling; batches are masked in the training process."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from blocks_c import Block
from common import Work, cycle, main


class Masked(Dataset):
    def __init__(self, vocab, length):
        self.vocab, self.length = vocab, length
        self.text = np.random.default_rng(0).integers(4, vocab, 4_000_000)

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        at = int(rng.integers(0, len(self.text) - self.length))
        ids = self.text[at : at + self.length].copy()
        goal = np.full_like(ids, -100)
        k = 0
        while k < self.length:
            span = int(rng.integers(1, 6))
            if rng.random() < 0.15:
                goal[k : k + span] = ids[k : k + span]
                ids[k : k + span] = 3
            k += span
        return torch.from_numpy(ids), torch.from_numpy(goal)


class MLM(nn.Module):
    def __init__(self, vocab, d, heads, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d, heads, causal=False) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def build(ctx):
    vocab, t, n = ctx.pick((8192, 1024, 12), (100, 16, 2))
    with torch.device(ctx.device):
        net = MLM(vocab, ctx.pick(4096, 32), ctx.pick(32, 2), ctx.pick(3, 1)).to(ctx.half)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    loader = DataLoader(Masked(vocab, t), batch_size=n, shuffle=True, num_workers=0, pin_memory=ctx.cuda, drop_last=True)
    batches = cycle(loader)
    if ctx.variant == "without":
        one = [x.to(ctx.device) for x in next(batches)]
        batches = iter(lambda: one, None)

    def train_step(i):
        ids, goal = (x.to(ctx.device, non_blocking=True) for x in next(batches))
        loss = F.cross_entropy(net(ids).flatten(0, 1), goal.flatten())
        loss.backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6), variants=("healthy", "without"))
