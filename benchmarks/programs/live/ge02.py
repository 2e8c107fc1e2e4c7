"""Batched summary generation with a decoder-only model, greedy with n-gram blocking."""
import argparse
import json
import statistics
import time

from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor, TemperatureLogitsWarper

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ge02"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 2800
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
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


class CachedAttention(nn.Module):
    def __init__(self, dim, heads, batch, limit):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        shape = (batch, heads, limit, dim // heads)
        self.register_buffer("keys", torch.zeros(shape), persistent=False)
        self.register_buffer("values", torch.zeros(shape), persistent=False)

    def forward(self, x, offset):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        end = offset + n
        self.keys[:, :, offset:end] = k
        self.values[:, :, offset:end] = v
        y = F.scaled_dot_product_attention(q, self.keys[:, :, :end], self.values[:, :, :end], is_causal=n > 1)
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads, batch, limit):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = CachedAttention(dim, heads, batch, limit)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, offset):
        x = x + self.attention(self.norm1(x), offset)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens = nn.Embedding(cfg["vocab"], cfg["dim"])
        self.positions = nn.Embedding(cfg["limit"], cfg["dim"])
        self.layers = nn.ModuleList(DecoderLayer(cfg["dim"], cfg["heads"], cfg["batch"], cfg["limit"])
                                    for _ in range(cfg["layers"]))
        self.norm = nn.LayerNorm(cfg["dim"])
        self.head = nn.Linear(cfg["dim"], cfg["vocab"], bias=False)

    def forward(self, ids, offset):
        where = torch.arange(offset, offset + ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.positions(where)
        for layer in self.layers:
            x = layer(x, offset)
        return self.head(self.norm(x[:, -1]))


class SuffixTable:
    """Bans continuations of suffixes that a row already holds."""

    def __init__(self, size):
        self.size = size
        self.rows, self.seen = [], []

    def _extend(self, row, seen, token):
        row.append(token)
        if len(row) >= self.size:
            seen.setdefault(tuple(row[-self.size:-1]), []).append(token)

    def __call__(self, input_ids, scores):
        length = input_ids.shape[1]
        if self.rows and len(self.rows[0]) == length - 1:
            for row, seen, token in zip(self.rows, self.seen, input_ids[:, -1].tolist()):
                self._extend(row, seen, token)
        else:
            self.rows = [[] for _ in range(len(input_ids))]
            self.seen = [{} for _ in range(len(input_ids))]
            for row, seen, tokens in zip(self.rows, self.seen, input_ids.tolist()):
                for token in tokens:
                    self._extend(row, seen, token)
        where, which = [], []
        for i, (row, seen) in enumerate(zip(self.rows, self.seen)):
            banned = seen.get(tuple(row[1 - self.size:]), ())
            where.extend([i] * len(banned))
            which.extend(banned)
        if which:
            scores = scores.clone()
            index = torch.tensor([where, which]).to(scores.device)
            scores[index[0], index[1]] = -float("inf")
        return scores


def build_processors(variant, ngram):
    processors = [TemperatureLogitsWarper(0.9)]
    if variant == "fixed":
        processors.append(SuffixTable(ngram))
    else:
        processors.append(NoRepeatNGramLogitsProcessor(ngram))
    return processors


class SummaryJob:
    def __init__(self, cfg, device, variant):
        self.cfg, self.device = cfg, device
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.model = Decoder(cfg).to(device, dtype).eval()
        self.processors = build_processors(variant, cfg["ngram"])
        self.generator = torch.Generator(device=device).manual_seed(3)
        self.finished = 0
        self.ids = None

    def admit(self):
        self.ids = torch.randint(0, self.cfg["vocab"], (self.cfg["batch"], self.cfg["prompt"]),
                                 device=self.device, generator=self.generator)
        return self.model(self.ids, 0)

    @torch.inference_mode()
    def step(self):
        if self.ids is None or self.ids.shape[1] >= self.cfg["limit"]:
            self.finished += 0 if self.ids is None else len(self.ids)
            scores = self.admit()
        else:
            scores = self.model(self.ids[:, -1:], self.ids.shape[1] - 1)
        scores = scores.float()
        for processor in self.processors:
            scores = processor(self.ids, scores)
        chosen = scores.argmax(-1, keepdim=True)
        self.ids = torch.cat([self.ids, chosen], dim=1)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        cfg = dict(vocab=32000, dim=768, heads=12, layers=8, batch=32, prompt=512, limit=1024, ngram=4)
    else:
        cfg = dict(vocab=300, dim=64, heads=4, layers=2, batch=4, prompt=32, limit=64, ngram=3)
    job = SummaryJob(cfg, device, args.variant)
    run_loop(args, device, job.step)


if __name__ == "__main__":
    main()
