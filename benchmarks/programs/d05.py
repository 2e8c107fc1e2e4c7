"""Language model training with rotary positions."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_d import Block
from common import Work, main


class Rotary(nn.Module):
    def __init__(self, head, length, base=10000.0):
        super().__init__()
        inv = base ** (-torch.arange(0, head, 2, dtype=torch.float32) / head)
        angle = torch.outer(torch.arange(length, dtype=torch.float32), inv).repeat(1, 2)
        self.cos, self.sin = nn.Buffer(angle.cos()), nn.Buffer(angle.sin())

    def forward(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin


class RotaryBlock(Block):
    def __init__(self, d, heads, rotary):
        super().__init__(d, heads)
        self.rotary = rotary

    def forward(self, x):
        q, k, v = self.split(self.n1(x))
        q, k = self.rotary(q), self.rotary(k)
        y = F.scaled_dot_product_attention(q, k, v.type_as(q), is_causal=True).to(x.dtype)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class LM(nn.Module):
    def __init__(self, vocab, d, heads, layers, length):
        super().__init__()
        self.rotary = Rotary(d // heads, length)
        self.emb, self.norm = nn.Embedding(vocab, d), nn.LayerNorm(d)
        self.blocks = nn.ModuleList(RotaryBlock(d, heads, self.rotary) for _ in range(layers))
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def build(ctx):
    vocab, d, heads, layers, n, t = ctx.pick((8192, 2048, 16, 6, 4, 2048), (64, 32, 2, 1, 2, 16))
    with torch.device(ctx.device):
        net = LM(vocab, d, heads, layers, t)
    for name, p in net.named_parameters():
        p.data = p.data.to(ctx.half)
    if not ctx.slow:
        net.rotary.to(ctx.half)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    text = torch.randint(0, vocab, (4, n, t + 1), device=ctx.device)

    def train_step(i):
        ids = text[i % 4]
        loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)

    return Work(train_step, items=n * t)


if __name__ == "__main__":
    main(build, steps=(100, 6))
