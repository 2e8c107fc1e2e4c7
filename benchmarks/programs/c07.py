"""Batched decoding over long prompts with grouped-query attention."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Layer(nn.Module):
    def __init__(self, d, heads, kv, ff, fold):
        super().__init__()
        self.h, self.kv, self.hd, self.fold = heads, kv, d // heads, fold
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v = nn.Linear(d, d, bias=False), nn.Linear(d, kv * self.hd, bias=False), nn.Linear(d, kv * self.hd, bias=False)
        self.o, self.up, self.down = nn.Linear(d, d, bias=False), nn.Linear(d, ff, bias=False), nn.Linear(ff, d, bias=False)

    def forward(self, x, cache, pos):
        b, d = x.shape
        h = self.n1(x)
        keys, values = cache
        keys[:, :, pos] = self.k(h).view(b, self.kv, self.hd)
        values[:, :, pos] = self.v(h).view(b, self.kv, self.hd)
        k, v = keys[:, :, : pos + 1], values[:, :, : pos + 1]
        g = self.h // self.kv
        if self.fold:
            y = F.scaled_dot_product_attention(self.q(h).view(b, self.kv, g, self.hd), k, v)
        else:
            k = k[:, :, None].expand(-1, -1, g, -1, -1).reshape(b, self.h, pos + 1, self.hd)
            v = v[:, :, None].expand(-1, -1, g, -1, -1).reshape(b, self.h, pos + 1, self.hd)
            y = F.scaled_dot_product_attention(self.q(h).view(b, self.h, 1, self.hd), k, v)
        x = x + self.o(y.reshape(b, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


def build(ctx):
    torch.set_grad_enabled(False)
    d, heads, kv, ff, layers = ctx.pick((4096, 32, 8, 11008, 6), (32, 4, 2, 64, 2))
    n, room, vocab = ctx.pick((16, 8192, 32000), (2, 64, 50))
    with torch.device(ctx.device):
        net = nn.ModuleList(Layer(d, heads, kv, ff, fold=not ctx.slow) for _ in range(layers)).to(ctx.half)
        emb = nn.Embedding(vocab, d, dtype=ctx.half)
        head = nn.Linear(d, vocab, bias=False, dtype=ctx.half)
        caches = [tuple(torch.randn(n, kv, room, d // heads, dtype=ctx.half) for _ in range(2)) for _ in range(layers)]
        state = {"tok": torch.randint(0, vocab, (n,))}
    start, tokens = room - ctx.pick(1024, 16), 8

    def decode(i):
        for j in range(tokens):
            pos = start + (i * tokens + j) % (room - start)
            x = emb(state["tok"])
            for layer, cache in zip(net, caches):
                x = layer(x, cache, pos)
            state["tok"] = head(x).argmax(-1)

    return Work(decode, items=n * tokens)


if __name__ == "__main__":
    main(build, steps=(200, 6))
