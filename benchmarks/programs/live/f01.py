"""Small mixture-of-experts language model, trained on random tokens."""
import logging
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks_f import Meter, parse, torch_sync

log = logging.getLogger("moe-lm")


@dataclass
class Config:
    vocab: int = 8192
    width: int = 1024
    hidden: int = 4096
    heads: int = 16
    layers: int = 4
    experts: int = 8
    batch: int = 12
    length: int = 1024
    lr: float = 3e-4
    routed: bool = True


class Expert(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.up = nn.Linear(cfg.width, cfg.hidden, bias=False)
        self.down = nn.Linear(cfg.hidden, cfg.width, bias=False)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class ExpertLayer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.routed = cfg.routed
        self.router = nn.Linear(cfg.width, cfg.experts, bias=False)
        self.experts = nn.ModuleList([Expert(cfg) for _ in range(cfg.experts)])

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        probs = self.router(x).float().softmax(-1)
        gate, choice = probs.max(-1)
        out = torch.zeros_like(x)
        if self.routed:
            for e, expert in enumerate(self.experts):
                rows = (choice == e).nonzero().squeeze(1)
                y = expert(x.index_select(0, rows)) * gate.index_select(0, rows).unsqueeze(1)
                out = out.index_add(0, rows, y.to(out.dtype))
        else:
            for e, expert in enumerate(self.experts):
                share = torch.where(choice == e, gate, torch.zeros_like(gate))
                out = out + (expert(x) * share.unsqueeze(1)).to(out.dtype)
        return out.view(shape)


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.n1 = nn.LayerNorm(cfg.width)
        self.n2 = nn.LayerNorm(cfg.width)
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width, bias=False)
        self.proj = nn.Linear(cfg.width, cfg.width, bias=False)
        self.ffn = ExpertLayer(cfg)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ffn(self.n2(x))


class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.width)
        self.pos = nn.Parameter(torch.zeros(cfg.length, cfg.width))
        self.blocks = nn.ModuleList([Block(cfg) for _ in range(cfg.layers)])
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    args = parse(["slow", "fixed"])
    cfg = Config(routed=args.variant == "fixed")
    if args.tiny:
        cfg.vocab, cfg.width, cfg.hidden, cfg.heads, cfg.layers, cfg.batch, cfg.length = 64, 32, 64, 4, 2, 2, 16
    torch.manual_seed(0)
    device = torch.device(args.device)
    with device:
        model = Model(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=device.type == "cuda")
    data = torch.randint(0, cfg.vocab, (16, cfg.batch, cfg.length + 1), device=device)
    log.info("%.1f M parameters", sum(p.numel() for p in model.parameters()) / 1e6)

    def train_step(i):
        ids = data[i % len(data)]
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().view(-1, cfg.vocab), ids[:, 1:].reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss

    for i in range(3):
        train_step(i)
    meter = Meter(torch_sync(device))
    for i in meter.loop(args.steps):
        loss = train_step(i)
        if (i + 1) % 50 == 0:
            log.info("step %d loss %.4f", i + 1, loss.item())
    meter.report()


if __name__ == "__main__":
    main()
