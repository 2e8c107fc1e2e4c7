"""A new classification head on a pretrained text encoder."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_c import Block
from common import Work, main


class Encoder(nn.Module):
    def __init__(self, vocab, d, heads, layers):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d, heads, causal=False) for _ in range(layers))
        self.norm = nn.LayerNorm(d)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        return self.norm(x)


class Classifier(nn.Module):
    def __init__(self, encoder, d, classes):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, classes))

    def forward(self, ids):
        return self.head(self.encoder(ids).mean(1))


def build(ctx):
    vocab, d = ctx.pick((30000, 1024), (100, 32))
    net = Classifier(Encoder(vocab, d, ctx.pick(16, 2), ctx.pick(12, 2)), d, 20).to(ctx.device, ctx.half)
    if not ctx.slow:
        net.encoder.requires_grad_(False)
    # only the head is trained
    opt = torch.optim.AdamW(net.head.parameters(), lr=1e-3, fused=True)
    n, t = ctx.pick((32, 512), (4, 16))
    pool = torch.randint(0, vocab, (8, n, t), device=ctx.device)
    y = torch.randint(0, 20, (n,), device=ctx.device)

    def train_step(i):
        loss = F.cross_entropy(net(pool[i % 8]).float(), y)
        loss.backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6))
