"""Structured (JSON-schema) decoding server: one step generates one token for every running request."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gk01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 2200
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


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.hd = heads, d // heads
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d, bias=False)
        self.gate_up = nn.Linear(d, 6 * d, bias=False)
        self.down = nn.Linear(3 * d, d, bias=False)

    def forward(self, x, kv, pos):
        b, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, 3, self.heads, 1, self.hd).unbind(1)
        kv[0][:, :, pos:pos + 1] = k
        kv[1][:, :, pos:pos + 1] = v
        a = F.scaled_dot_product_attention(q, kv[0][:, :, :pos + 1], kv[1][:, :, :pos + 1])
        x = x + self.out(a.reshape(b, d))
        g, u = self.gate_up(self.n2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(g) * u)


class Decoder(nn.Module):
    def __init__(self, vocab, d, layers, heads):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids, cache, pos):
        x = self.tok(ids)
        for block, kv in zip(self.blocks, cache):
            x = block(x, kv, pos)
        return self.head(self.norm(x))


class Automaton:
    """Token-level automaton compiled from a schema: for each state the legal token ids and the successors."""

    FREE_TEXT = (2, 3, 4)

    def __init__(self, vocab, seed=0):
        rng = np.random.default_rng(seed)
        sizes = {0: 3, 1: 40, 2: vocab // 2, 3: vocab // 2 - 500, 4: vocab // 3, 5: min(1100, vocab // 4), 6: 12, 7: 2}
        self.legal = {s: sorted(rng.choice(vocab, n, replace=False).tolist()) for s, n in sizes.items()}
        self.branch = {0: (1,), 1: (2, 3, 5), 2: (2,) * 12 + (6,), 3: (3,) * 10 + (6,), 4: (4,) * 9 + (7,),
                       5: (5, 5, 5, 6), 6: (1, 4, 0), 7: (0, 1, 4)}

    def advance(self, state, token):
        options = self.branch[state]
        return options[token % len(options)]


class Guide:
    """Applies the automaton of every running request to the logits of the batch."""

    def __init__(self, automaton, requests, vocab, device, tables):
        self.automaton, self.device = automaton, device
        self.states = [i % 8 for i in range(requests)]
        self.table = None
        if tables:
            self.table = torch.ones(len(automaton.legal), vocab, dtype=torch.bool)
            for state, ids in automaton.legal.items():
                self.table[state, torch.tensor(ids)] = False
            self.table = self.table.to(device)

    def __call__(self, logits):
        if self.table is not None:
            rows = torch.tensor(self.states, device=self.device)
            return logits.masked_fill(self.table[rows], float("-inf"))
        biased = torch.full_like(logits, float("-inf"))
        for i, state in enumerate(self.states):
            ids = torch.tensor(self.automaton.legal[state], device=self.device)
            biased[i, ids] = logits[i, ids]
        return biased

    def advance(self, tokens):
        self.states = [self.automaton.advance(s, t) for s, t in zip(self.states, tokens)]


class Engine:
    def __init__(self, device, variant):
        big = device.type == "cuda"
        self.device = device
        self.requests, self.prompt, self.limit = (8, 192, 1024) if big else (3, 8, 32)
        vocab, d, layers, heads = (64000, 1536, 24, 12) if big else (2000, 64, 2, 4)
        dtype = torch.bfloat16 if big else torch.float32
        with torch.device(device):
            self.model = Decoder(vocab, d, layers, heads).to(dtype).eval()
        self.cache = [torch.randn(2, self.requests, heads, self.limit, d // heads, device=device, dtype=dtype)
                      for _ in range(layers)]
        self.guide = Guide(Automaton(vocab), self.requests, vocab, device, tables=variant == "fixed")
        self.last = torch.randint(0, vocab, (self.requests,), device=device)
        self.pos = self.prompt
        self.texts = [[] for _ in range(self.requests)]

    @torch.inference_mode()
    def tick(self):
        if self.pos >= self.limit:
            self.pos = self.prompt
            self.texts = [[] for _ in range(self.requests)]
        logits = self.model(self.last, self.cache, self.pos).float()
        probs = torch.softmax(self.guide(logits) / 0.8, dim=-1)
        self.last = torch.multinomial(probs, 1).squeeze(1)
        tokens = self.last.tolist()
        self.guide.advance(tokens)
        for text, token in zip(self.texts, tokens):
            text.append(token)
        self.pos += 1


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    engine = Engine(device, args.variant)
    run_loop(args, device, engine.tick)


if __name__ == "__main__":
    main()
