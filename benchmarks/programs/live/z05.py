"""Batched summarisation: decode loop with static KV cache, repetition control and top-p sampling."""
import argparse
import json
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

PROGRAM = "z05"


@dataclass
class ServeConfig:
    vocab: int = 32000
    dim: int = 2048
    heads: int = 16
    layers: int = 20
    batch: int = 48
    prompt: int = 1200
    max_len: int = 2600
    ngram: int = 3
    top_p: float = 0.9
    temperature: float = 0.8

    @classmethod
    def for_device(cls, device):
        if device == "cpu":
            return cls(vocab=128, dim=32, heads=2, layers=2, batch=3, prompt=24, max_len=128)
        return cls()


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.h, self.d = cfg.heads, cfg.dim // cfg.heads
        self.ln1 = nn.LayerNorm(cfg.dim)
        self.qkv = nn.Linear(cfg.dim, 3 * cfg.dim)
        self.out = nn.Linear(cfg.dim, cfg.dim)
        self.ln2 = nn.LayerNorm(cfg.dim)
        self.up = nn.Linear(cfg.dim, 4 * cfg.dim)
        self.down = nn.Linear(4 * cfg.dim, cfg.dim)

    def forward(self, x, cache, pos):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.h, self.d).permute(2, 0, 3, 1, 4)
        cache[0][:, :, pos:pos + t] = k
        cache[1][:, :, pos:pos + t] = v
        y = F.scaled_dot_product_attention(q, cache[0][:, :, :pos + t], cache[1][:, :, :pos + t], is_causal=t > 1)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Summariser(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.dim)
        self.pos = nn.Embedding(cfg.max_len, cfg.dim)
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg.layers))
        self.norm = nn.LayerNorm(cfg.dim)

    def forward(self, ids, caches, pos):
        where = torch.arange(pos, pos + ids.shape[1], device=ids.device)
        x = self.tok(ids) + self.pos(where)
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, pos)
        return F.linear(self.norm(x[:, -1]), self.tok.weight)


class NGramBlocker:
    """Forbids any token that would complete an n-gram already present in the sequence."""

    def __init__(self, cfg, device):
        self.n, self.device = cfg.ngram, device

    def start(self, ids):
        pass

    def observe(self, tokens):
        pass

    def continuations(self, sequence):
        seen = defaultdict(list)
        for gram in zip(*[sequence[k:] for k in range(self.n)]):
            seen[gram[:-1]].append(gram[-1])
        return seen[tuple(sequence[1 - self.n:])]

    def banned(self, ids):
        return [self.continuations(seq) for seq in ids.tolist()]

    def __call__(self, ids, logits):
        rows, cols = [], []
        for r, tokens in enumerate(self.banned(ids)):
            rows += [r] * len(tokens)
            cols += tokens
        if rows:
            at = torch.tensor([rows, cols]).to(self.device)
            logits[at[0], at[1]] = float("-inf")
        return logits


class IndexedNGramBlocker(NGramBlocker):
    def start(self, ids):
        self.tails, self.index = [], []
        for seq in ids.tolist():
            seen = defaultdict(list)
            for gram in zip(*[seq[k:] for k in range(self.n)]):
                seen[gram[:-1]].append(gram[-1])
            self.index.append(seen)
            self.tails.append(tuple(seq[1 - self.n:]))

    def observe(self, tokens):
        for r, tok in enumerate(tokens):
            tail = self.tails[r]
            self.index[r][tail].append(tok)
            self.tails[r] = tail[1:] + (tok,)

    def banned(self, ids):
        return [seen.get(tail, []) for seen, tail in zip(self.index, self.tails)]


BLOCKERS = {"slow": NGramBlocker, "fixed": IndexedNGramBlocker}


def nucleus(logits, cfg):
    top, idx = torch.topk(logits.float() / cfg.temperature, min(64, cfg.vocab), dim=-1)
    probs = top.softmax(-1)
    drop = probs.cumsum(-1) - probs > cfg.top_p
    pick = torch.multinomial(probs.masked_fill(drop, 0.0), 1)
    return idx.gather(1, pick)


class Session:
    def __init__(self, cfg, device, blocker):
        self.cfg, self.dev, self.blocker = cfg, device, blocker
        torch.set_default_dtype(torch.bfloat16)
        with device:
            self.model = Summariser(cfg).eval()
            shape = (cfg.batch, cfg.heads, cfg.max_len, cfg.dim // cfg.heads)
            self.caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(cfg.layers)]
        torch.set_default_dtype(torch.float32)
        self.ids = torch.zeros(cfg.batch, cfg.max_len, dtype=torch.long, device=device)
        self.begin()

    @torch.inference_mode()
    def begin(self):
        cfg = self.cfg
        g = torch.Generator().manual_seed(5)
        self.ids[:, :cfg.prompt] = torch.randint(2, cfg.vocab, (cfg.batch, cfg.prompt), generator=g).to(self.dev)
        for c in range(0, cfg.batch, 8):
            part = [(k[c:c + 8], v[c:c + 8]) for k, v in self.caches]
            self.logits_for(self.ids[c:c + 8, :cfg.prompt], part, 0)
        self.blocker.start(self.ids[:, :cfg.prompt])
        self.pos = cfg.prompt
        self.texts = [[] for _ in range(cfg.batch)]

    def logits_for(self, ids, caches, pos):
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            return self.model(ids, caches, pos)

    @torch.inference_mode()
    def step(self, i):
        if self.pos + 1 >= self.cfg.max_len:
            self.begin()
        logits = self.logits_for(self.ids[:, self.pos - 1:self.pos], self.caches, self.pos - 1)
        logits = self.blocker(self.ids[:, :self.pos], logits)
        nxt = nucleus(logits, self.cfg)
        self.ids[:, self.pos:self.pos + 1] = nxt
        self.pos += 1
        tokens = nxt[:, 0].tolist()
        self.blocker.observe(tokens)
        for text, tok in zip(self.texts, tokens):
            text.append(tok)


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
    cfg, dev = ServeConfig.for_device(args.device), torch.device(args.device)
    session = Session(cfg, dev, BLOCKERS[args.variant](cfg, dev))
    default = {"slow": 360, "fixed": 1350}[args.variant]
    drive(args, session.step, args.steps or (default if args.device == "cuda" else 6), warmup=8)


if __name__ == "__main__":
    main()
