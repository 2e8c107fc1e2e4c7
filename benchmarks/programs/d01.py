"""Streaming text generation: a recurrent language model and a few dozen open streams."""
import random
import re

import torch
import torch.nn as nn

from common import Work, main

SPACE = re.compile(r" ([.,!?;:])")


class Vocabulary:
    def __init__(self, n):
        rng = random.Random(5)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self.pieces = [("▁" if rng.random() < 0.6 else "") + "".join(rng.choices(letters, k=rng.randint(1, 6))) for _ in range(n)]
        for i, c in enumerate(".,!?;:"):
            self.pieces[i] = "▁" + c

    def decode(self, ids):
        text = "".join([self.pieces[t] for t in ids]).replace("▁", " ")
        return SPACE.sub(r"\1", text)


class Stream:
    def __init__(self, vocab, ids, window):
        self.vocab, self.ids, self.window = vocab, list(ids), window
        self.sent = len(vocab.decode(self.ids))
        self.outbox = []

    def push(self, token):
        self.ids.append(token)
        if self.window:
            before = self.vocab.decode(self.ids[-self.window - 1 : -1])
            after = self.vocab.decode(self.ids[-self.window - 1 :])
            piece = after[len(before) :]
            self.sent += len(piece)
        else:
            text = self.vocab.decode(self.ids)
            piece = text[self.sent :]
            self.sent = len(text)
        self.outbox.append(piece)


class Cell(nn.Module):
    """Gated linear recurrence followed by a feed-forward."""

    def __init__(self, d):
        super().__init__()
        self.mix, self.proj = nn.Linear(d, 2 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)
        self.norm = nn.LayerNorm(d)

    def forward(self, x, state):
        z, c = self.mix(x).chunk(2, -1)
        state.lerp_(c, z.sigmoid_())
        x = x + self.proj(state)
        return x + self.down(torch.relu_(self.up(self.norm(x))))


class LM(nn.Module):
    def __init__(self, vocab, d, layers):
        super().__init__()
        self.emb, self.head = nn.Embedding(vocab, d), nn.Linear(d, vocab, bias=False)
        self.cells, self.norm = nn.ModuleList(Cell(d) for _ in range(layers)), nn.LayerNorm(d)

    def forward(self, ids, states):
        x = self.emb(ids)
        for cell, s in zip(self.cells, states):
            x = cell(x, s)
        return self.head(self.norm(x))


def build(ctx):
    torch.set_grad_enabled(False)
    v, d, layers, n = ctx.pick((32000, 8192, 8, 64), (256, 32, 2, 4))
    floor, ceiling = ctx.pick((1200, 2400), (30, 60))
    torch.set_default_dtype(ctx.half)
    with torch.device(ctx.device):
        net = LM(v, d, layers).eval()
        states = [torch.zeros(n, d) for _ in range(layers)]
    torch.set_default_dtype(torch.float32)
    words, rng = Vocabulary(v), random.Random(9)

    def opened():
        return Stream(words, rng.choices(range(v), k=rng.randint(floor, ceiling - 1)), 0 if ctx.slow else 8)

    streams = [opened() for _ in range(n)]
    last = torch.zeros(n, dtype=torch.long, device=ctx.device)

    def token(i):
        nonlocal last
        logits = net(last, states).float()
        noise = torch.empty_like(logits).exponential_()
        last = (logits.softmax(-1) / noise).argmax(-1)
        for k, t in enumerate(last.tolist()):
            streams[k].push(t)
            if len(streams[k].ids) >= ceiling:
                streams[k] = opened()

    return Work(token, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6))
