"""Multi-task training: one encoder, five heads, weighted losses."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_d import Block
from common import Work, main

TASKS = {"topic": 1.0, "intent": 0.5, "tone": 0.25, "language": 0.5, "spam": 0.25}


class MultiTask(nn.Module):
    def __init__(self, vocab, d, heads, layers, classes):
        super().__init__()
        self.emb, self.norm = nn.Embedding(vocab, d), nn.LayerNorm(d)
        self.encoder = nn.Sequential(*[Block(d, heads, causal=False) for _ in range(layers)])
        self.heads = nn.ModuleDict({k: nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, classes)) for k in TASKS})

    def forward(self, ids):
        z = self.norm(self.encoder(self.emb(ids))).mean(1)
        return {k: head(z) for k, head in self.heads.items()}


def build(ctx):
    vocab, d, heads, layers, n, t = ctx.pick((8192, 1024, 16, 6, 32, 256), (64, 32, 2, 2, 2, 16))
    with torch.device(ctx.device):
        net = MultiTask(vocab, d, heads, layers, 32).to(ctx.half)
        text = torch.randint(0, vocab, (4, n, t))
        labels = {k: torch.randint(0, 32, (4, n)) for k in TASKS}
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    shown = {k: torch.zeros(64, device=ctx.device) for k in TASKS}

    def train_step(i):
        out = net(text[i % 4])
        losses = {k: w * F.cross_entropy(out[k].float(), labels[k][i % 4]) for k, w in TASKS.items()}
        if ctx.slow:
            for left, loss in zip(range(len(losses) - 1, -1, -1), losses.values()):
                loss.backward(retain_graph=left > 0)
        else:
            sum(losses.values()).backward()
        for k, loss in losses.items():
            shown[k][i % 64] = loss.detach()
        opt.step()
        opt.zero_grad(set_to_none=True)

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(150, 6))
