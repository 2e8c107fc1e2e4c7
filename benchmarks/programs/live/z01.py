"""Instruction tuning of a Llama-style decoder with low-rank adapters on packed sequences."""
import argparse
import json
import math
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize

PROGRAM = "z01"


@dataclass
class ModelConfig:
    vocab: int = 32000
    dim: int = 4096
    ffn: int = 11008
    heads: int = 32
    layers: int = 8
    seq: int = 2048
    batch: int = 2
    rank: int = 16
    alpha: int = 32

    @classmethod
    def for_device(cls, device):
        if device == "cpu":
            return cls(vocab=256, dim=64, ffn=128, heads=4, layers=2, seq=32, batch=2, rank=4)
        return cls()


class PackedDataset(torch.utils.data.IterableDataset):
    """Concatenates synthetic conversations up to the context length; prompts are masked in the labels."""

    def __init__(self, cfg, seed=0):
        self.cfg, self.seed = cfg, seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        cfg = self.cfg
        pool = torch.randint(3, cfg.vocab, (64, cfg.seq + 1), generator=g)
        mask = torch.rand(64, cfg.seq, generator=g) < 0.3
        while True:
            j = int(torch.randint(0, 64, (1,), generator=g))
            row = pool[j]
            labels = row[1:].clone()
            labels[mask[j]] = -100
            yield row[:-1], labels


class RotaryTable(nn.Module):
    def __init__(self, head_dim, seq):
        super().__init__()
        inv = 1.0 / (10000 ** (torch.arange(0, head_dim, 2).float() / head_dim))
        ang = torch.outer(torch.arange(seq).float(), inv)
        ang = torch.cat([ang, ang], dim=-1)
        self.register_buffer("cos", ang.cos(), persistent=False)
        self.register_buffer("sin", ang.sin(), persistent=False)

    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        return x * self.cos.to(x.dtype) + torch.cat([-b, a], dim=-1) * self.sin.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.h, self.d = cfg.heads, cfg.dim // cfg.heads
        self.q_proj = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.k_proj = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.v_proj = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.o_proj = nn.Linear(cfg.dim, cfg.dim, bias=False)

    def forward(self, x, rope):
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, self.h, self.d).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.gate_proj = nn.Linear(cfg.dim, cfg.ffn, bias=False)
        self.up_proj = nn.Linear(cfg.dim, cfg.ffn, bias=False)
        self.down_proj = nn.Linear(cfg.ffn, cfg.dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm1 = nn.RMSNorm(cfg.dim)
        self.attn = Attention(cfg)
        self.norm2 = nn.RMSNorm(cfg.dim)
        self.mlp = FeedForward(cfg)

    def forward(self, x, rope):
        x = x + self.attn(self.norm1(x), rope)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.dim)
        self.rope = RotaryTable(cfg.dim // cfg.heads, cfg.seq)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = nn.RMSNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab, bias=False)

    def forward(self, ids, labels):
        x = self.embed(ids)
        for blk in self.blocks:
            x = blk(x, self.rope)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


class LowRankDelta(nn.Module):
    """Adapter expressed as a parametrization of the layer's weight."""

    def __init__(self, linear, rank, alpha):
        super().__init__()
        w = linear.weight
        self.a = nn.Parameter(torch.empty(rank, w.shape[1], dtype=w.dtype, device=w.device))
        self.b = nn.Parameter(torch.zeros(w.shape[0], rank, dtype=w.dtype, device=w.device))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        self.scale = alpha / rank

    def forward(self, weight):
        return weight + (self.b @ self.a) * self.scale


class AdapterLinear(nn.Module):
    """Adapter as a side branch around a frozen projection."""

    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base
        w = base.weight
        self.a = nn.Parameter(torch.empty(rank, w.shape[1], dtype=w.dtype, device=w.device))
        self.b = nn.Parameter(torch.zeros(w.shape[0], rank, dtype=w.dtype, device=w.device))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a) * self.scale, self.b)


def via_parametrization(parent, name, layer, cfg):
    parametrize.register_parametrization(layer, "weight", LowRankDelta(layer, cfg.rank, cfg.alpha))


def via_branch(parent, name, layer, cfg):
    setattr(parent, name, AdapterLinear(layer, cfg.rank, cfg.alpha))


ATTACH = {"slow": via_parametrization, "fixed": via_branch}


def add_adapters(model, cfg, attach):
    for p in model.parameters():
        p.requires_grad_(False)
    targets = [(m, n, c) for m in model.blocks.modules() for n, c in list(m.named_children()) if isinstance(c, nn.Linear)]
    for parent, name, layer in targets:
        attach(parent, name, layer, cfg)
    return [p for p in model.parameters() if p.requires_grad]


def parse_args(variants):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def drive(args, step, steps, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps, it = [], warmup
    start = last = time.perf_counter()
    for _ in range(steps):
        step(it)
        it += 1
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": PROGRAM, "variant": args.variant, "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 3),
        "step_ms_median": round(1e3 * statistics.median(laps), 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if cuda:
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for k in range(6):
                step(it)
                it += 1
                if cuda and k == 5:
                    sync()
                prof.step()


def main():
    args = parse_args(["slow", "fixed"])
    torch.manual_seed(0)
    cfg = ModelConfig.for_device(args.device)
    dev = torch.device(args.device)
    prev = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    with dev:
        model = Decoder(cfg)
    torch.set_default_dtype(prev)
    trainable = add_adapters(model, cfg, ATTACH[args.variant])
    opt = torch.optim.AdamW(trainable, lr=2e-4, weight_decay=0.0, fused=args.device == "cuda")
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    loader = iter(torch.utils.data.DataLoader(PackedDataset(cfg), batch_size=cfg.batch, num_workers=2 if args.device == "cuda" else 0,
                                              pin_memory=args.device == "cuda"))
    running = torch.zeros((), device=dev)

    def step(i):
        ids, labels = next(loader)
        ids, labels = ids.to(dev, non_blocking=True), labels.to(dev, non_blocking=True)
        loss = model(ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        running.mul_(0.95).add_(loss.detach().float(), alpha=0.05)

    drive(args, step, args.steps or (150 if args.device == "cuda" else 4), warmup=4)


if __name__ == "__main__":
    main()
