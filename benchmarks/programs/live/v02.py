"""Batched decode engine: running requests, paged-free KV cache, penalties and sampling."""
import argparse
import json
import random
import statistics
import time
from dataclasses import dataclass
from typing import List

import numpy as np
import torch
import torch.nn.functional as F


@dataclass
class ModelConfig:
    vocab: int = 151936
    hidden: int = 4096
    layers: int = 12
    heads: int = 32
    kv_heads: int = 4
    ffn: int = 11008
    max_len: int = 5632

    @property
    def head_dim(self):
        return self.hidden // self.heads


@dataclass
class SamplingParams:
    temperature: float = 0.8
    top_k: int = 40
    presence_penalty: float = 0.2
    frequency_penalty: float = 0.1
    repetition_penalty: float = 1.05


@dataclass
class Request:
    rid: int
    prompt: List[int]
    output: List[int]
    params: SamplingParams


class Decoder:
    """Llama-style decoder with a preallocated cache; weights are random."""

    def __init__(self, cfg: ModelConfig, batch: int, device, dtype):
        self.cfg, self.device = cfg, device
        h, d, kv = cfg.hidden, cfg.head_dim, cfg.kv_heads

        def w(*shape):
            return torch.empty(*shape, device=device, dtype=dtype).normal_(std=0.02)

        self.embed = w(cfg.vocab, h)
        self.layers = [dict(qkv=w(h + 2 * kv * d, h), o=w(h, h), up=w(2 * cfg.ffn, h), down=w(h, cfg.ffn),
                            n1=torch.ones(h, device=device, dtype=dtype), n2=torch.ones(h, device=device, dtype=dtype))
                       for _ in range(cfg.layers)]
        self.norm = torch.ones(h, device=device, dtype=dtype)
        self.k = [torch.zeros(batch, kv, cfg.max_len, d, device=device, dtype=dtype) for _ in range(cfg.layers)]
        self.v = [torch.zeros(batch, kv, cfg.max_len, d, device=device, dtype=dtype) for _ in range(cfg.layers)]
        inv = 1.0 / (10000 ** (torch.arange(0, d, 2, device=device).float() / d))
        ang = torch.outer(torch.arange(cfg.max_len, device=device).float(), inv)
        self.cos, self.sin = ang.cos().to(dtype), ang.sin().to(dtype)

    def rope(self, x, pos):
        a, b = x.chunk(2, dim=-1)
        c, s = self.cos[pos], self.sin[pos]
        return torch.cat([a * c - b * s, b * c + a * s], dim=-1)

    def forward(self, tokens, pos):
        cfg, n = self.cfg, tokens.shape[0]
        x = F.embedding(tokens, self.embed)
        for i, p in enumerate(self.layers):
            q, k, v = F.linear(F.rms_norm(x, (cfg.hidden,), p["n1"]), p["qkv"]).split(
                [cfg.hidden, cfg.kv_heads * cfg.head_dim, cfg.kv_heads * cfg.head_dim], dim=-1)
            q = self.rope(q.view(n, cfg.heads, cfg.head_dim), pos)
            self.k[i][:, :, pos] = self.rope(k.view(n, cfg.kv_heads, cfg.head_dim), pos)
            self.v[i][:, :, pos] = v.view(n, cfg.kv_heads, cfg.head_dim)
            a = F.scaled_dot_product_attention(q.unsqueeze(2), self.k[i][:, :, :pos + 1], self.v[i][:, :, :pos + 1], enable_gqa=True)
            x = x + F.linear(a.reshape(n, cfg.hidden), p["o"])
            g, u = F.linear(F.rms_norm(x, (cfg.hidden,), p["n2"]), p["up"]).chunk(2, dim=-1)
            x = x + F.linear(F.silu(g) * u, p["down"])
        return F.linear(F.rms_norm(x, (cfg.hidden,), self.norm), self.embed).float()


def pad_rows(rows: List[List[int]], pad: int, pin: bool):
    width = max(len(r) for r in rows)
    out = np.full((len(rows), width), pad, dtype=np.int64)
    for i, r in enumerate(rows):
        out[i, :len(r)] = r
    t = torch.from_numpy(out)
    return t.pin_memory() if pin else t


def counts_from_tokens(tokens, vocab):
    counts = torch.zeros(tokens.shape[0], vocab + 1, dtype=torch.int32, device=tokens.device)
    counts.scatter_add_(1, tokens, torch.ones_like(tokens, dtype=torch.int32))
    return counts[:, :vocab]


class PenaltyState:
    def __init__(self, requests: List[Request], vocab: int, device, resident: bool):
        self.requests, self.vocab, self.device, self.resident = requests, vocab, device, resident
        params = [r.params for r in requests]

        def col(name):
            return torch.tensor([getattr(p, name) for p in params], device=device).unsqueeze(1)

        self.presence, self.frequency, self.repetition = col("presence_penalty"), col("frequency_penalty"), col("repetition_penalty")
        self.prompt_mask = counts_from_tokens(pad_rows([r.prompt for r in requests], vocab, False).to(device), vocab) > 0
        self.counts = self.output_counts() if resident else None

    def output_counts(self):
        rows = pad_rows([r.output for r in self.requests], self.vocab, self.device.type == "cuda")
        return counts_from_tokens(rows.to(self.device, non_blocking=True), self.vocab)

    def current(self):
        return self.counts if self.resident else self.output_counts()

    def commit(self, tokens):
        if self.resident:
            self.counts.scatter_add_(1, tokens.unsqueeze(1), torch.ones_like(tokens, dtype=torch.int32).unsqueeze(1))

    def apply(self, logits):
        counts = self.current()
        seen = counts > 0
        scale = torch.where(seen | self.prompt_mask, self.repetition, 1.0)
        logits = torch.where(logits > 0, logits / scale, logits * scale)
        logits.sub_(self.frequency * counts).sub_(self.presence * seen)
        return logits


class Engine:
    def __init__(self, cfg: ModelConfig, batch: int, history: int, device, resident: bool):
        rng = random.Random(7)
        self.cfg, self.device = cfg, device
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        prompt = max(4, history // 16)
        self.requests = [Request(i, [rng.randrange(cfg.vocab) for _ in range(prompt)],
                                 [rng.randrange(cfg.vocab) for _ in range(history - rng.randrange(max(2, history // 8)))],
                                 SamplingParams()) for i in range(batch)]
        self.model = Decoder(cfg, batch, device, dtype)
        self.penalties = PenaltyState(self.requests, cfg.vocab, device, resident)
        self.pos = prompt + history
        self.tokens = torch.randint(0, cfg.vocab, (batch,), device=device)

    def sample(self, logits):
        p = self.requests[0].params
        top, idx = torch.topk(logits / p.temperature, p.top_k, dim=-1)
        probs = top.softmax(dim=-1)
        choice = (probs / torch.empty_like(probs).exponential_(1.0)).argmax(dim=-1, keepdim=True)
        return idx.gather(1, choice).squeeze(1)

    @torch.inference_mode()
    def step(self):
        logits = self.penalties.apply(self.model.forward(self.tokens, self.pos))
        self.tokens = self.sample(logits)
        self.penalties.commit(self.tokens)
        for req, tok in zip(self.requests, self.tokens.tolist()):
            req.output.append(tok)
        self.pos = min(self.pos + 1, self.cfg.max_len - 1)


def trace_steps(fn, device, path):
    from torch.profiler import ProfilerActivity as A, profile, schedule
    acts = [A.CPU] + ([A.CUDA] if device.type == "cuda" else [])
    prof = profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                   schedule=schedule(wait=0, warmup=2, active=4), on_trace_ready=lambda p: p.export_chrome_trace(path))
    with prof:
        for _ in range(6):
            fn()
            prof.step()


def cli():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--steps", type=int, default=650)
    ap.add_argument("--max-seconds", type=float, default=60.0)
    ap.add_argument("--trace")
    return ap.parse_args()


def main():
    args = cli()
    device = torch.device(args.device)
    torch.manual_seed(0)
    cfg, batch, history = ModelConfig(), 64, 4096
    if device.type == "cpu":
        cfg, batch, history = ModelConfig(vocab=512, hidden=64, layers=2, heads=4, kv_heads=2, ffn=128, max_len=256), 4, 128
    engine = Engine(cfg, batch, history, device, resident=args.variant == "fixed")
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for _ in range(5):
        engine.step()
    sync()
    begin = time.perf_counter()
    times, last = [], begin
    for _ in range(args.steps):
        engine.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if now - begin > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - begin
    print(json.dumps({"program": "v02", "variant": args.variant, "steps": len(times), "step_ms_mean": total / len(times) * 1e3,
                      "step_ms_median": statistics.median(times) * 1e3}), flush=True)
    if args.trace:
        trace_steps(engine.step, device, args.trace)


if __name__ == "__main__":
    main()
