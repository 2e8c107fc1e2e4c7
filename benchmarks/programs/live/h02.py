"""Batched text generation with a grouped-query-attention decoder over long prompts."""

import argparse
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class LMConfig:
    dim: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    batch: int
    prompt: int
    max_len: int
    variant: str

    @property
    def head_dim(self):
        return self.dim // self.heads


def rotary_table(cfg, device, dtype):
    inv = 1.0 / (10000 ** (torch.arange(0, cfg.head_dim, 2, device=device).float() / cfg.head_dim))
    ang = torch.outer(torch.arange(cfg.max_len, device=device).float(), inv)
    return ang.cos().to(dtype), ang.sin().to(dtype)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        kv = cfg.kv_heads * cfg.head_dim
        self.wq = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.wkv = nn.Linear(cfg.dim, 2 * kv, bias=False)
        self.wo = nn.Linear(cfg.dim, cfg.dim, bias=False)

    def forward(self, x, cache, pos, cos, sin):
        cfg = self.cfg
        b = x.shape[0]
        groups = cfg.heads // cfg.kv_heads
        q = self.wq(x).view(b, cfg.heads, cfg.head_dim)
        k, v = self.wkv(x).view(b, 2, cfg.kv_heads, cfg.head_dim).unbind(1)
        q, k = rotate(q, cos[pos], sin[pos]), rotate(k, cos[pos], sin[pos])
        cache[0][:, :, pos] = k
        cache[1][:, :, pos] = v
        keys, values = cache[0][:, :, : pos + 1], cache[1][:, :, : pos + 1]
        if cfg.variant == "slow":
            t = keys.shape[2]
            shape = (b, cfg.kv_heads, groups, t, cfg.head_dim)
            keys = keys[:, :, None].expand(shape).reshape(b, cfg.heads, t, cfg.head_dim)
            values = values[:, :, None].expand(shape).reshape(b, cfg.heads, t, cfg.head_dim)
            out = F.scaled_dot_product_attention(q.unsqueeze(2), keys, values)
        else:
            q = q.view(b, cfg.kv_heads, groups, cfg.head_dim)
            out = F.scaled_dot_product_attention(q, keys, values)
        return self.wo(out.reshape(b, cfg.dim))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n1 = nn.RMSNorm(cfg.dim)
        self.n2 = nn.RMSNorm(cfg.dim)
        self.attn = Attention(cfg)
        self.gate_up = nn.Linear(cfg.dim, 2 * cfg.ffn, bias=False)
        self.down = nn.Linear(cfg.ffn, cfg.dim, bias=False)

    def forward(self, x, cache, pos, cos, sin):
        x = x + self.attn(self.n1(x), cache, pos, cos, sin)
        g, u = self.gate_up(self.n2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(g) * u)


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.norm = nn.RMSNorm(cfg.dim)

    def forward(self, tokens, caches, pos, cos, sin):
        x = self.emb(tokens)
        for blk, cache in zip(self.blocks, caches):
            x = blk(x, cache, pos, cos, sin)
        return F.linear(self.norm(x), self.emb.weight)


def sample(logits, temperature=0.8, k=40):
    top, ids = torch.topk(logits.float() / temperature, k)
    noise = torch.empty_like(top).exponential_(1)
    choice = (top.softmax(-1) / noise).argmax(-1, keepdim=True)
    return ids.gather(1, choice).squeeze(1)


@torch.inference_mode()
def generate(model, cfg, caches, tokens, steps, limit):
    cos, sin = rotary_table(cfg, tokens.device, caches[0][0].dtype)
    produced, nll = [], torch.zeros((), device=tokens.device)
    start = time.perf_counter()
    for i in range(steps):
        logits = model(tokens, caches, cfg.prompt + i, cos, sin)
        nll += logits.float().logsumexp(-1).mean()
        tokens = sample(logits)
        produced.append(tokens)
        if (i + 1) % 100 == 0:
            print(
                f"{i + 1} tokens, first row tail {torch.stack(produced[-4:], 1)[0].tolist()}",
                flush=True,
            )
            if time.perf_counter() - start > limit:
                break
    mean = nll.item() / len(produced)
    return torch.stack(produced, 1), mean, time.perf_counter() - start


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--device", default="cuda")
    p.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    p.add_argument("--steps", type=int, default=1500)
    p.add_argument("--max-seconds", type=float, default=36)
    a = p.parse_args()
    torch.manual_seed(0)
    if a.device == "cuda":
        dims = dict(
            dim=4096, layers=8, heads=32, kv_heads=8, ffn=11008, vocab=32000, batch=32, prompt=7000
        )
        dtype = torch.bfloat16
    else:
        dims = dict(dim=64, layers=2, heads=4, kv_heads=2, ffn=128, vocab=200, batch=2, prompt=30)
        dtype = torch.float32
    cfg = LMConfig(**dims, max_len=dims["prompt"] + a.steps, variant=a.variant)
    torch.set_default_dtype(dtype)
    with torch.device(a.device):
        model = Decoder(cfg)
        shape = (cfg.batch, cfg.kv_heads, cfg.max_len, cfg.head_dim)
        caches = [(torch.randn(shape) * 0.5, torch.randn(shape) * 0.5) for _ in range(cfg.layers)]
        tokens = torch.randint(0, cfg.vocab, (cfg.batch,))
    out, loss, took = generate(model, cfg, caches, tokens, a.steps, a.max_seconds)
    print(f"done steps={out.shape[1]} ms_per_step={1e3 * took / out.shape[1]:.2f} loss={loss:.5f}")


if __name__ == "__main__":
    main()
