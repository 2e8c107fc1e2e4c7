"""Judge service: a decoder-only LM reads queued prompts and answers each with the probability of a yes-verdict."""
import argparse
import json
import queue
import statistics
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gi02"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 4000
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=40.0)
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


class Config:
    def __init__(self, big):
        self.vocab = 151936 if big else 4096
        self.hidden = 1024 if big else 128
        self.layers = 14 if big else 2
        self.heads = 16 if big else 4
        self.kv_heads = 4 if big else 2
        self.ffn = 3072 if big else 256
        self.max_len = 1024


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.h, self.kv, self.d = c.heads, c.kv_heads, c.hidden // c.heads
        self.n1 = nn.RMSNorm(c.hidden, eps=1e-6)
        self.n2 = nn.RMSNorm(c.hidden, eps=1e-6)
        self.qkv = nn.Linear(c.hidden, (self.h + 2 * self.kv) * self.d, bias=False)
        self.out = nn.Linear(c.hidden, c.hidden, bias=False)
        self.gate_up = nn.Linear(c.hidden, 2 * c.ffn, bias=False)
        self.down = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        qkv = self.qkv(self.n1(x)).view(b, t, -1, self.d).transpose(1, 2)
        q, k, v = qkv.split((self.h, self.kv, self.kv), dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, -1))
        gate, up = self.gate_up(self.n2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class CausalLM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.vocab, c.hidden)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.hidden, eps=1e-6)
        self.lm_head = nn.Linear(c.hidden, c.vocab, bias=False)
        d = c.hidden // c.heads
        inv = 1.0 / (10000.0 ** (torch.arange(0, d, 2) / d))
        ang = torch.outer(torch.arange(c.max_len), inv)
        self.register_buffer("cos", ang.cos(), persistent=False)
        self.register_buffer("sin", ang.sin(), persistent=False)

    def backbone(self, ids):
        x = self.embed(ids)
        cos, sin = self.cos[:ids.shape[1]], self.sin[:ids.shape[1]]
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.norm(x)

    def forward(self, ids, keep=None):
        hidden = self.backbone(ids)
        if keep is not None:
            hidden = hidden[torch.arange(ids.shape[0], device=ids.device), keep]
        return self.lm_head(hidden).float()


class RequestSource(threading.Thread):
    """Stands for the network side: assembles length-bucketed batches of tokenised prompts."""

    def __init__(self, vocab, batch, buckets):
        super().__init__(daemon=True)
        self.rng = np.random.default_rng(7)
        self.vocab, self.batch, self.buckets = vocab, batch, buckets
        self.ready = queue.Queue(maxsize=8)

    def run(self):
        while True:
            top = int(self.rng.choice(self.buckets))
            lengths = self.rng.integers(int(top * 0.85), top + 1, self.batch)
            ids = np.zeros((self.batch, top), dtype=np.int64)
            for row, n in enumerate(lengths):
                ids[row, :n] = self.rng.integers(10, self.vocab, n)
            self.ready.put((torch.from_numpy(ids), torch.from_numpy(lengths)))


class JudgeServer:
    def __init__(self, model, source, device, variant):
        self.model, self.source, self.device = model, source, device
        self.variant = variant
        self.yes, self.no = 9, 5
        self.answered = 0
        self.yes_mass = 0.0

    @torch.inference_mode()
    def verdicts(self, ids, lengths):
        last = lengths - 1
        if self.variant == "fixed":
            logits = self.model(ids, keep=last)
        else:
            logits = self.model(ids)
            logits = logits[torch.arange(ids.shape[0], device=ids.device), last]
        logp = torch.log_softmax(logits, dim=-1)
        return torch.sigmoid(logp[:, self.yes] - logp[:, self.no])

    def serve_one(self):
        ids, lengths = self.source.ready.get()
        probs = self.verdicts(ids.to(self.device), lengths.to(self.device)).cpu()
        self.answered += len(probs)
        self.yes_mass += float(probs.sum())


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    config = Config(big)
    with torch.device(device):
        model = CausalLM(config)
    model = model.to(torch.bfloat16).eval()
    source = RequestSource(config.vocab, 16 if big else 2, (256, 512, 768, 1024) if big else (32, 64))
    source.start()
    server = JudgeServer(model, source, device, args.variant)
    run_loop(args, device, server.serve_one)


if __name__ == "__main__":
    main()
