"""Resumed language model training with NAdam."""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_d import Block
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


def loss_of(net, ids):
    return F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def resume(opt, blob, device, counters):
    """Moments go to the device, the per-parameter counters to `counters`."""
    opt.load_state_dict(torch.load(blob, map_location="cpu"))
    for state in opt.state.values():
        for k, v in state.items():
            state[k] = v.to(device) if v.dim() else v.to(counters, torch.float32)


def build(ctx):
    vocab, d, heads, layers, n, t = ctx.pick((8192, 768, 12, 32, 8, 1024), (64, 32, 2, 2, 2, 16))
    with torch.device(ctx.device):
        net = LM(vocab, d, heads, layers).to(ctx.half)
        text = torch.randint(0, vocab, (4, n, t + 1))
    new = lambda: torch.optim.NAdam(net.parameters(), lr=1e-4, weight_decay=0.01, decoupled_weight_decay=True)
    # the earlier run, cut short, and its checkpoint
    opt, blob = new(), io.BytesIO()
    loss_of(net, text[0, :1]).backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
    torch.save(opt.state_dict(), blob)
    blob.seek(0)
    opt = new()
    resume(opt, blob, ctx.device, ctx.device if ctx.slow else "cpu")

    def train_step(i):
        loss_of(net, text[i % 4]).backward()
        opt.step()
        opt.zero_grad(set_to_none=True)

    return Work(train_step, items=n * t)


if __name__ == "__main__":
    main(build, steps=(100, 6))
