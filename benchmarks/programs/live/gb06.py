"""Batched JSON-constrained generation: a small decoder serves requests, an automaton says which tokens may follow."""
import argparse
import json
import random
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gb06"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 500
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


class JsonAutomaton:
    """States of a flat JSON object over a synthetic vocabulary whose ids are grouped by token class."""

    def __init__(self, vocab, seed=0):
        rng = random.Random(seed)
        ids = list(range(vocab))
        rng.shuffle(ids)
        self.open, self.close, self.colon, self.comma, self.quote, self.eos = ids[:6]
        self.digits = ids[6:6 + vocab // 40]
        self.literals = ids[6 + vocab // 40:6 + vocab // 40 + 64]
        self.words = ids[6 + vocab // 40 + 64:]
        words, digits = sorted(self.words), sorted(self.digits)
        self.allowed = {
            "start": [self.open],
            "key": [self.quote],
            "key_text": words + [self.quote],
            "colon": [self.colon],
            "value": sorted([self.quote] + digits + self.literals),
            "text": words + [self.quote],
            "number": digits + [self.comma, self.close],
            "after": [self.comma, self.close],
            "done": [self.eos],
        }
        self._digit_set, self._literal_set = set(digits), set(self.literals)

    def advance(self, state, token):
        if state == "start":
            return "key"
        if state == "key":
            return "key_text"
        if state == "key_text":
            return "colon" if token == self.quote else "key_text"
        if state == "colon":
            return "value"
        if state == "value":
            if token == self.quote:
                return "text"
            return "number" if token in self._digit_set else "after"
        if state == "text":
            return "after" if token == self.quote else "text"
        if state in ("number", "after"):
            if token == self.comma:
                return "key"
            return "done" if token == self.close else "number"
        return "done"


class GrammarMask:
    def __init__(self, automaton, vocab, device, variant):
        self.automaton, self.device = automaton, device
        self.vocab = vocab
        self.index = {}
        self.keep_index = variant == "fixed"

    def allowed_index(self, state):
        if self.keep_index and state in self.index:
            return self.index[state]
        found = torch.tensor(self.automaton.allowed[state], dtype=torch.long, device=self.device)
        if self.keep_index:
            self.index[state] = found
        return found

    def apply(self, logits, states):
        bias = torch.full_like(logits, float("-inf"))
        for row, state in enumerate(states):
            bias[row].index_fill_(0, self.allowed_index(state), 0.0)
        return logits + bias


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x, keys, values, at):
        b, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, 3, self.heads, d // self.heads).unbind(1)
        keys[:, :, at], values[:, :, at] = k, v
        y = F.scaled_dot_product_attention(q.unsqueeze(2), keys[:, :, :at + 1], values[:, :, :at + 1])
        x = x + self.out(y.reshape(b, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, vocab, dim, depth, heads, batch, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.position = nn.Embedding(length, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        shape = (depth, 2, batch, heads, length, dim // heads)
        self.register_buffer("cache", torch.zeros(shape), persistent=False)

    def forward(self, tokens, at):
        x = self.embed(tokens) + self.position.weight[at]
        for layer, (keys, values) in zip(self.layers, self.cache):
            x = layer(x, keys, values, at)
        return self.head(self.norm(x)).float()


class Server:
    def __init__(self, args, device):
        big = device.type == "cuda"
        self.vocab, dim, depth = (32_000, 1024, 24) if big else (512, 64, 2)
        self.batch, self.length, self.burst = (4, 384, 8) if big else (2, 24, 4)
        self.device = device
        with torch.device(device):
            self.model = Decoder(self.vocab, dim, depth, dim // 64, self.batch, self.length)
        self.model = self.model.to(torch.bfloat16 if big else torch.float32).eval()
        self.automaton = JsonAutomaton(self.vocab)
        self.mask = GrammarMask(self.automaton, self.vocab, device, args.variant)
        self.gen = torch.Generator(device=device).manual_seed(5)
        self.prior = torch.zeros(self.vocab, device=device)
        self.prior[self.automaton.quote] = 9.0
        self.prior[[self.automaton.comma, self.automaton.close]] = 6.0
        self.finished, self.produced = 0, 0
        self.admit()

    def admit(self):
        self.at = 0
        self.states = ["start"] * self.batch
        self.outputs = [[] for _ in range(self.batch)]
        self.tokens = torch.full((self.batch,), self.automaton.eos, device=self.device)

    def sample(self, logits):
        noise = torch.empty_like(logits).exponential_(generator=self.gen)
        return ((logits + self.prior).softmax(-1) / noise).argmax(-1)

    def decode_one(self):
        logits = self.model(self.tokens, self.at)
        self.tokens = self.sample(self.mask.apply(logits, self.states))
        for row, token in enumerate(self.tokens.tolist()):
            if self.states[row] != "done":
                self.outputs[row].append(token)
                self.produced += 1
            self.states[row] = self.automaton.advance(self.states[row], token)
            if self.states[row] == "done":
                self.restart(row)
        self.at += 1
        if self.at == self.length:
            self.admit()

    def restart(self, row):
        self.finished += 1
        self.outputs[row] = []
        self.states[row] = "start"

    @torch.inference_mode()
    def step(self):
        for _ in range(self.burst):
            self.decode_one()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    server = Server(args, device)
    run_loop(args, device, server.step)
    print(json.dumps({"documents": server.finished, "tokens": server.produced}))


if __name__ == "__main__":
    main()
