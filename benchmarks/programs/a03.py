"""Fine-tunes a text encoder with a learning rate that decays from layer to layer.

TRUTH: the optimizer gets one param group for each parameter (`groups_of`, one dict per named parameter, about 290 groups), so
AdamW(fused=True) runs one small launch chain, with its Python work, for every parameter instead of one multi-tensor update;
Optimizer.step (_fused_adamw_ about 290 times) dominates the host. Fix: merge parameters with the same (lr, weight_decay) into
one group (about 50 groups), `groups_of(..., merge=True)`.
"""
import torch
import torch.nn.functional as F

from common import Work, main
from nets import TextEncoder


def groups_of(net, depth, lr, decay, merge):
    groups = {}
    for name, p in net.named_parameters():
        level = int(name.split(".")[1]) if name.startswith("blocks.") else (-1 if name.startswith(("word", "position")) else depth)
        wd = 0.0 if p.ndim < 2 else 0.05
        key = (level, wd) if merge else name
        g = groups.setdefault(key, {"params": [], "lr": lr * decay ** (depth - level), "weight_decay": wd})
        g["params"].append(p)
    return list(groups.values())


def build(ctx):
    depth, t, n = ctx.pick(24, 3), ctx.pick(128, 16), ctx.pick(64, 4)
    net = TextEncoder(ctx.pick(16000, 200), ctx.pick(384, 32), depth, 4, max_len=t).to(ctx.device, ctx.half)
    opt = torch.optim.AdamW(groups_of(net, depth, 3e-5, 0.9, merge=not ctx.slow), fused=True)
    ids = torch.randint(0, net.word.num_embeddings, (4, n, t), device=ctx.device)
    label = torch.randint(0, 2, (4, n), device=ctx.device)

    def train_step(i):
        F.cross_entropy(net(ids[i % 4]).float(), label[i % 4]).backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(60, 6), warmup=6)
