"""Batch captioning service: a decoder answers groups of requests with beam search."""
import argparse
import json
import math
import random
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gl01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 300
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=50.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


@dataclass
class Settings:
    layers: int = 8
    width: int = 1024
    heads: int = 16
    vocab: int = 16000
    max_len: int = 2048
    requests: int = 16
    beams: int = 4
    prompt: int = 64


class KVStore:
    """Keys and values of every layer, one row per live hypothesis."""

    def __init__(self, cfg, device, dtype, compact):
        rows = cfg.requests * cfg.beams
        shape = (rows, cfg.heads, cfg.max_len, cfg.width // cfg.heads)
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(cfg.layers)]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(cfg.layers)]
        self.length = 0
        self.compact = compact

    def reset(self):
        self.length = 0

    def append(self, layer, k, v):
        stop = self.length + k.shape[2]
        self.keys[layer][:, :, self.length:stop] = k
        self.values[layer][:, :, self.length:stop] = v
        return self.keys[layer][:, :, :stop], self.values[layer][:, :, :stop]

    def follow(self, rows):
        for buffers in (self.keys, self.values):
            for i, buf in enumerate(buffers):
                if self.compact:
                    live = buf[:, :, :self.length]
                    live.copy_(live.index_select(0, rows))
                else:
                    buffers[i] = buf.index_select(0, rows)


class DecoderLayer(nn.Module):
    def __init__(self, cfg, index):
        super().__init__()
        self.index, self.heads = index, cfg.heads
        self.norm1 = nn.LayerNorm(cfg.width)
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width)
        self.proj = nn.Linear(cfg.width, cfg.width)
        self.norm2 = nn.LayerNorm(cfg.width)
        self.up = nn.Linear(cfg.width, 4 * cfg.width)
        self.down = nn.Linear(4 * cfg.width, cfg.width)

    def forward(self, x, store):
        b, n, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        k, v = store.append(self.index, k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=n > 1)
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Captioner(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens = nn.Embedding(cfg.vocab, cfg.width)
        self.places = nn.Embedding(cfg.max_len, cfg.width)
        self.layers = nn.ModuleList([DecoderLayer(cfg, i) for i in range(cfg.layers)])
        self.norm = nn.LayerNorm(cfg.width)

    def forward(self, ids, store):
        start = store.length
        pos = torch.arange(start, start + ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.places(pos)
        for layer in self.layers:
            x = layer(x, store)
        store.length = start + ids.shape[1]
        return F.linear(self.norm(x[:, -1]), self.tokens.weight)


class BeamSearch:
    def __init__(self, cfg, model, store, device):
        self.cfg, self.model, self.store, self.device = cfg, model, store, device
        self.base = (torch.arange(cfg.requests, device=device) * cfg.beams).unsqueeze(1)

    def advance(self, logits, scores):
        cfg = self.cfg
        logp = F.log_softmax(logits.float(), dim=-1).view(cfg.requests, cfg.beams, cfg.vocab)
        total = (scores.unsqueeze(-1) + logp).view(cfg.requests, -1)
        scores, flat = total.topk(cfg.beams, dim=-1)
        rows = (self.base + flat // cfg.vocab).view(-1)
        return scores, rows, (flat % cfg.vocab).view(-1)

    @torch.inference_mode()
    def answer(self, prompts, new_tokens):
        cfg = self.cfg
        self.store.reset()
        ids = prompts.repeat_interleave(cfg.beams, dim=0)
        scores = torch.zeros(cfg.requests, cfg.beams, device=self.device)
        scores[:, 1:] = -1e4
        written = torch.zeros(ids.shape[0], new_tokens, dtype=torch.long, device=self.device)
        logits = self.model(ids, self.store)
        for i in range(new_tokens):
            scores, rows, token = self.advance(logits, scores)
            written = written.index_select(0, rows)
            written[:, i] = token
            if i + 1 == new_tokens:
                break
            self.store.follow(rows)
            logits = self.model(token.unsqueeze(1), self.store)
        penalty = math.pow((5 + new_tokens) / 6, 0.7)
        best = (scores / penalty).argmax(dim=-1) + self.base.squeeze(1)
        return written.index_select(0, best).cpu()


class Frontend:
    """Groups incoming requests by the length they asked for."""

    def __init__(self, cfg, device, lengths):
        self.cfg, self.device, self.lengths = cfg, device, lengths
        self.rng = random.Random(7)
        self.gen = torch.Generator().manual_seed(7)
        self.sent = 0

    def next_group(self):
        ids = torch.randint(0, self.cfg.vocab, (self.cfg.requests, self.cfg.prompt), generator=self.gen)
        return ids.to(self.device), self.rng.choice(self.lengths)

    def deliver(self, captions):
        self.sent += captions.shape[0]


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    cfg, lengths, dtype = Settings(), [24, 32, 40, 56, 72], torch.bfloat16
    if device.type == "cpu":
        cfg = Settings(layers=2, width=64, heads=4, vocab=200, max_len=128, requests=2, beams=3, prompt=8)
        lengths, dtype = [4, 6], torch.float32
    model = Captioner(cfg).to(device=device, dtype=dtype).eval()
    store = KVStore(cfg, device, dtype, compact=args.variant == "fixed")
    search = BeamSearch(cfg, model, store, device)
    front = Frontend(cfg, device, lengths)

    def step():
        prompts, new_tokens = front.next_group()
        front.deliver(search.answer(prompts, new_tokens))

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
