"""Decodes batches of structured JSON replies with a small language model; one step emits one token per sequence."""
import argparse
import json
import random
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gf02"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 3000
MAX_SECONDS = 42.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=MAX_SECONDS)
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

class ReplyGrammar:
    """Finite automaton over token ids for {"name": "...", "age": n, "tags": ["...", ...]}"""

    def __init__(self, vocab, seed=5):
        rng = random.Random(seed)
        everything = list(range(vocab))
        few = lambda n: sorted(rng.sample(everything, n))
        text = sorted(rng.sample(everything, int(vocab * 0.78)))
        digits = few(max(16, vocab // 100))
        self.allowed = {
            "open": few(3), "key": few(12), "colon": few(4), "value_open": few(6), "text": text,
            "after": few(9), "number": digits, "list_open": few(3), "list_text": text[: int(len(text) * 0.9)],
            "list_next": few(8), "close": few(2),
        }
        self.follow = {
            "open": ("key", 1), "key": ("colon", 3), "colon": ("value_open", 1), "value_open": ("text", 2),
            "text": ("after", 7), "after": ("number", 2), "number": ("list_open", 3), "list_open": ("list_text", 1),
            "list_text": ("list_next", 5), "list_next": ("close", 3), "close": (None, 1),
        }

    def allowed_token_ids(self, state):
        return self.allowed[state]

    def advance(self, state, token, count):
        nxt, mean = self.follow[state]
        if count >= 2 * mean or (token + count) % mean == 0:
            return nxt, 0
        return state, count + 1


class GrammarProcessor:
    def __init__(self, grammar, vocab, device, variant):
        self.grammar, self.vocab, self.device = grammar, vocab, device
        self.keep = variant == "fixed"
        self.biases = {}

    def bias_for(self, state):
        if self.keep and state in self.biases:
            return self.biases[state]
        ids = torch.tensor(self.grammar.allowed_token_ids(state), dtype=torch.long)
        bias = torch.full((self.vocab,), float("-inf"), device=self.device)
        bias.index_fill_(0, ids.to(self.device), 0.0)
        if self.keep:
            self.biases[state] = bias
        return bias

    def __call__(self, states, logits):
        return logits + torch.stack([self.bias_for(s) for s in states])


class Block(nn.Module):
    def __init__(self, dim, heads, batch, length):
        super().__init__()
        self.heads, self.hd = heads, dim // heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.register_buffer("k", torch.zeros(batch, length, heads, self.hd), persistent=False)
        self.register_buffer("v", torch.zeros(batch, length, heads, self.hd), persistent=False)

    def forward(self, x, rows, pos, mask):
        b = x.shape[0]
        q, k, v = self.qkv(self.n1(x)).view(b, 3, self.heads, self.hd).unbind(1)
        self.k[rows, pos] = k
        self.v[rows, pos] = v
        scores = torch.einsum("bhd,blhd->bhl", q, self.k) * self.hd ** -0.5
        att = torch.softmax(scores + mask, dim=-1)
        x = x + self.out(torch.einsum("bhl,blhd->bhd", att, self.v).reshape(b, -1))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Decoder(nn.Module):
    def __init__(self, vocab, dim, layers, heads, batch, length):
        super().__init__()
        self.tok, self.posn = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, batch, length) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.length = length

    def forward(self, tokens, pos):
        rows = torch.arange(tokens.shape[0], device=tokens.device)
        x = self.tok(tokens) + self.posn(pos)
        ahead = torch.arange(self.length, device=tokens.device)[None] > pos[:, None]
        mask = torch.zeros(ahead.shape, device=x.device, dtype=x.dtype).masked_fill_(ahead, float("-inf"))[:, None]
        for block in self.blocks:
            x = block(x, rows, pos, mask)
        return F.linear(self.norm(x), self.tok.weight).float()


class Engine:
    def __init__(self, model, grammar, processor, batch, device):
        self.model, self.grammar, self.processor, self.device = model, grammar, processor, device
        self.states = ["open"] * batch
        self.counts = [0] * batch
        self.outputs = [[] for _ in range(batch)]
        self.tokens = torch.ones(batch, dtype=torch.long, device=device)
        self.pos = torch.zeros(batch, dtype=torch.long, device=device)
        self.finished = 0

    def sample(self, logits, temperature=0.8):
        probs = torch.softmax(logits / temperature, dim=-1)
        return torch.multinomial(probs, 1).squeeze(1)

    @torch.inference_mode()
    def step(self):
        logits = self.model(self.tokens, self.pos)
        self.tokens = self.sample(self.processor(self.states, logits))
        keep = [1] * len(self.states)
        for i, token in enumerate(self.tokens.tolist()):
            self.outputs[i].append(token)
            state, count = self.grammar.advance(self.states[i], token, self.counts[i])
            if state is None or len(self.outputs[i]) >= self.model.length - 2:
                state, count, keep[i] = "open", 0, 0
                self.finished += 1
                self.outputs[i] = []
            self.states[i], self.counts[i] = state, count
        self.pos = (self.pos + 1) * torch.tensor(keep, device=self.device)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    small = device.type == "cpu"
    vocab, batch = (3000, 4) if small else (128_256, 16)
    dim, layers, heads = (64, 2, 4) if small else (1024, 12, 16)
    with torch.device(device):
        model = Decoder(vocab, dim, layers, heads, batch, 192)
    model = model.to(torch.float32 if small else torch.bfloat16).eval()
    grammar = ReplyGrammar(vocab)
    engine = Engine(model, grammar, GrammarProcessor(grammar, vocab, device, args.variant), batch, device)
    run_loop(args, device, engine.step)


if __name__ == "__main__":
    main()
