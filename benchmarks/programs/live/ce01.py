"""Offline transcription worker: audio features in, beam-searched token ids out."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

MOVED = {"slow": ("past", "memory"), "fixed": ("past",)}


@dataclass
class Config:
    width: int = 256
    heads: int = 4
    encoder_layers: int = 5
    decoder_layers: int = 4
    vocab: int = 4000
    frames: int = 400
    beams: int = 3
    max_tokens: int = 14
    bos: int = 1


def split_heads(x, heads):
    b, t, d = x.shape
    return x.view(b, t, heads, d // heads).transpose(1, 2)


def merge_heads(x):
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class Mlp(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class EncoderBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm1, self.norm2 = nn.LayerNorm(cfg.width), nn.LayerNorm(cfg.width)
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width)
        self.out = nn.Linear(cfg.width, cfg.width)
        self.mlp = Mlp(cfg.width)

    def forward(self, x):
        q, k, v = (split_heads(p, self.heads) for p in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(merge_heads(F.scaled_dot_product_attention(q, k, v)))
        return x + self.mlp(self.norm2(x))


class SelfAttention(nn.Module):
    def __init__(self, cfg, index):
        super().__init__()
        self.heads, self.index = cfg.heads, index
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width)
        self.out = nn.Linear(cfg.width, cfg.width)

    def forward(self, x, state):
        q, k, v = (split_heads(p, self.heads) for p in self.qkv(x).chunk(3, -1))
        keys, values = state.past[self.index]
        keys[:, :, state.pos : state.pos + 1] = k
        values[:, :, state.pos : state.pos + 1] = v
        end = state.pos + 1
        y = F.scaled_dot_product_attention(q, keys[:, :, :end], values[:, :, :end])
        return self.out(merge_heads(y))


@dataclass
class Slot:
    source: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


class CrossAttention(nn.Module):
    def __init__(self, cfg, index):
        super().__init__()
        self.heads, self.index = cfg.heads, index
        self.q = nn.Linear(cfg.width, cfg.width)
        self.kv = nn.Linear(cfg.width, 2 * cfg.width)
        self.out = nn.Linear(cfg.width, cfg.width)

    def lookup(self, state):
        slot = state.cross.get(self.index)
        if slot is None or slot.source is not state.memory:
            k, v = self.kv(state.memory).chunk(2, -1)
            slot = Slot(state.memory, split_heads(k, self.heads), split_heads(v, self.heads))
            state.cross[self.index] = slot
        return slot.k, slot.v

    def forward(self, x, state):
        k, v = self.lookup(state)
        return self.out(merge_heads(F.scaled_dot_product_attention(split_heads(self.q(x), self.heads), k, v)))


class DecoderBlock(nn.Module):
    def __init__(self, cfg, index):
        super().__init__()
        self.n1, self.n2, self.n3 = (nn.LayerNorm(cfg.width) for _ in range(3))
        self.attn, self.cross, self.mlp = SelfAttention(cfg, index), CrossAttention(cfg, index), Mlp(cfg.width)

    def forward(self, x, state):
        x = x + self.attn(self.n1(x), state)
        x = x + self.cross(self.n2(x), state)
        return x + self.mlp(self.n3(x))


@dataclass
class SearchState:
    memory: torch.Tensor
    past: list
    cross: dict = field(default_factory=dict)
    pos: int = 0

    def reorder(self, order, names):
        for name in names:
            value = getattr(self, name)
            if isinstance(value, torch.Tensor):
                setattr(self, name, value.index_select(0, order))
            else:
                setattr(self, name, [tuple(t.index_select(0, order) for t in pair) for pair in value])
        self.pos += 1


class Transcriber(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.front = nn.Conv1d(80, cfg.width, 3, stride=1, padding=1)
        self.encoder = nn.ModuleList(EncoderBlock(cfg) for _ in range(cfg.encoder_layers))
        self.tokens = nn.Embedding(cfg.vocab, cfg.width)
        self.places = nn.Embedding(cfg.max_tokens + 1, cfg.width)
        self.decoder = nn.ModuleList(DecoderBlock(cfg, i) for i in range(cfg.decoder_layers))
        self.norm = nn.LayerNorm(cfg.width)

    def encode(self, mel):
        x = F.gelu(self.front(mel)).transpose(1, 2)
        for block in self.encoder:
            x = block(x)
        return x

    def open_search(self, memory):
        cfg = self.cfg
        memory = memory.repeat_interleave(cfg.beams, 0)
        shape = (memory.shape[0], cfg.heads, cfg.max_tokens, cfg.width // cfg.heads)
        return SearchState(memory, [(torch.zeros(shape), torch.zeros(shape)) for _ in self.decoder])

    def next_scores(self, last, state):
        x = self.tokens(last)[:, None] + self.places.weight[state.pos]
        for block in self.decoder:
            x = block(x, state)
        return F.log_softmax(self.norm(x[:, 0]) @ self.tokens.weight.T, -1)


def transcribe(model, mel, moved):
    cfg = model.cfg
    state = model.open_search(model.encode(mel))
    n = mel.shape[0]
    base = (torch.arange(n) * cfg.beams)[:, None]
    history = torch.full((n * cfg.beams, 1), cfg.bos)
    totals = torch.full((n, cfg.beams), -1e9)
    totals[:, 0] = 0
    for _ in range(cfg.max_tokens):
        scores = model.next_scores(history[:, -1], state).view(n, cfg.beams, cfg.vocab)
        totals, flat = (totals[:, :, None] + scores).view(n, -1).topk(cfg.beams, -1)
        order = (base + flat // cfg.vocab).view(-1)
        history = torch.cat([history.index_select(0, order), (flat % cfg.vocab).view(-1, 1)], 1)
        state.reorder(order, moved)
    return history.view(n, cfg.beams, -1)[:, 0, 1:].tolist()


def requests(cfg, seed):
    g = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(1, 80, cfg.frames, generator=g)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=23)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cfg = Config()
    model = Transcriber(cfg).eval()
    times, produced = [], 0
    began = time.perf_counter()
    with torch.inference_mode():
        for step, mel in zip(range(args.steps), requests(cfg, 7)):
            t0 = time.perf_counter()
            produced += sum(map(len, transcribe(model, mel, MOVED[args.variant])))
            times.append((time.perf_counter() - t0) * 1e3)
            if time.perf_counter() - began > args.max_seconds:
                break
    kept = times[2:] or times
    print(json.dumps({"case": "ce01", "variant": args.variant, "steps": len(times), "tokens": produced,
                      "mean_step_ms": round(statistics.fmean(kept), 2),
                      "median_step_ms": round(statistics.median(kept), 2)}))


if __name__ == "__main__":
    main()
