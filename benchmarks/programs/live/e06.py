"""Small decoder-only language model, compiled, with capped logits and a z-loss."""
import logging
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_e import StepTimes, base_parser

logger = logging.getLogger("lm")


@dataclass
class LMConfig:
    vocab: int = 32000
    dim: int = 1024
    heads: int = 16
    layers: int = 2
    seq: int = 1024
    batch: int = 16
    cap: float = 30.0
    z: float = 1e-4


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
        return (y * self.scale.float()).to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg.dim
        self.heads = cfg.heads
        self.n1, self.n2 = RMSNorm(d), RMSNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, 3 * d, bias=False)
        self.down = nn.Linear(3 * d, d, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.blocks = nn.ModuleList(Layer(cfg) for _ in range(cfg.layers))
        self.norm = RMSNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab, bias=False)
        hd = cfg.dim // cfg.heads
        freq = 10000 ** (-torch.arange(0, hd, 2).float() / hd)
        ang = torch.outer(torch.arange(cfg.seq).float(), freq)
        self.register_buffer("cos", ang.cos())
        self.register_buffer("sin", ang.sin())

    def logits(self, ids):
        x = self.emb(ids)
        for blk in self.blocks:
            x = blk(x, self.cos, self.sin)
        y = self.head(self.norm(x)).float()
        return self.cfg.cap * torch.tanh(y / self.cfg.cap)

    def training_loss(self, ids, labels):
        y = self.logits(ids).flatten(0, 1)
        lse = torch.logsumexp(y, dim=-1)
        return F.cross_entropy(y, labels.flatten()) + self.cfg.z * lse.square().mean()

    def forward(self, ids, labels):
        return self.training_loss(ids, labels)


def main():
    args = base_parser().parse_args()
    logging.basicConfig(level=logging.INFO)
    cfg = LMConfig()
    if args.tiny:
        cfg = LMConfig(vocab=64, dim=32, heads=2, layers=1, seq=16, batch=2)
    dev = torch.device(args.device)
    torch.manual_seed(0)
    model = LM(cfg).to(dev)
    model.head.weight.data.mul_(1 / math.sqrt(cfg.layers))
    for p in model.parameters():
        p.data = p.data.to(torch.bfloat16)
    model = torch.compile(model, backend="inductor" if dev.type == "cuda" else "eager")
    compute = model.training_loss if args.variant == "slow" else model
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=dev.type == "cuda")
    data = torch.randint(cfg.vocab, (8, cfg.batch, cfg.seq + 1), device=dev)
    times = StepTimes(dev)
    warm = 1 if args.tiny else 5
    for step in range(args.steps + warm):
        if step == warm:
            times.begin()
        chunk = data[step % 8]
        loss = compute(chunk[:, :-1].contiguous(), chunk[:, 1:].contiguous())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 50 == 49:
            logger.info("step %d loss %.4f", step, loss.item())
        if step >= warm:
            times.tick()
    times.finish()


if __name__ == "__main__":
    main()
