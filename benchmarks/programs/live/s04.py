"""Grammar-constrained batch decoding (JSON-like state machine); the decoder step is a captured CUDA graph."""
import argparse
import json
import math
import random
import statistics
import time

import torch
import torch.nn.functional as F

STATES = ["open", "key", "colon", "string", "number", "comma", "close"]


class Grammar:
    """Token-level automaton: which tokens a state admits and where each class of token leads."""

    def __init__(self, vocab, seed=0):
        rng = random.Random(seed)
        ids = list(range(vocab))
        rng.shuffle(ids)
        cut = {"open": 40, "key": vocab // 16, "colon": 12, "string": vocab // 3, "number": 1100, "comma": 20, "close": 8}
        self.vocab = vocab
        self.admitted = [sorted(rng.sample(ids, min(cut[s], vocab // 2))) for s in STATES]
        self.kind = [min(rng.randrange(60), 3) for _ in range(vocab)]
        go = {"open": "key", "key": "colon", "colon": "string", "number": "comma", "comma": "key", "close": "open"}
        at = STATES.index
        self.move = []
        for s in STATES:
            row = [at(go.get(s, s))] * 4
            if s == "string":
                row = [at("comma"), at("close"), at("number"), at("string")]
            self.move.append(row)

    def advance(self, states, tokens):
        return [self.move[s][self.kind[t]] for s, t in zip(states, tokens)]


class AdmittedTokens:
    """Adds -inf to every token that the current state of a sequence does not admit."""

    def __init__(self, grammar, device):
        self.grammar, self.device = grammar, device

    def __call__(self, logits, states):
        for row, state in enumerate(states):
            allowed = torch.tensor(self.grammar.admitted[state], device=self.device)
            bias = torch.full_like(logits[row], -math.inf)
            bias[allowed] = 0
            logits[row] += bias
        return logits


class StateTable:
    def __init__(self, grammar, device):
        blocked = torch.ones(len(STATES), grammar.vocab, dtype=torch.bool)
        for i, ids in enumerate(grammar.admitted):
            blocked[i, torch.tensor(ids)] = False
        self.blocked, self.device = blocked.to(device), device

    def __call__(self, logits, states):
        index = torch.tensor(states, device=self.device)
        return logits.masked_fill_(self.blocked[index], -math.inf)


class Decoder:
    def __init__(self, vocab, dim, ffn, heads, kv_heads, depth, batch, window, device, dtype):
        self.heads, self.kv, self.hd = heads, kv_heads, dim // heads
        self.batch, self.window, self.dim = batch, window, dim
        make = lambda o, i: torch.empty(o, i, device=device, dtype=dtype).normal_(0, 0.5 / math.sqrt(i))
        self.embed = torch.empty(vocab, dim, device=device, dtype=dtype).normal_()
        self.head = make(vocab, dim)
        self.layers = []
        for _ in range(depth):
            self.layers.append({
                "qkv": make((heads + 2 * kv_heads) * self.hd, dim), "o": make(dim, dim),
                "in": make(2 * ffn, dim), "out": make(dim, ffn),
                "n1": torch.ones(dim, device=device, dtype=dtype), "n2": torch.ones(dim, device=device, dtype=dtype),
                "k": torch.zeros(batch, kv_heads, window, self.hd, device=device, dtype=dtype),
                "v": torch.zeros(batch, kv_heads, window, self.hd, device=device, dtype=dtype),
            })
        self.tokens = torch.zeros(batch, dtype=torch.long, device=device)
        self.pos = torch.zeros(1, dtype=torch.long, device=device)
        self.slots = torch.arange(window, device=device)
        self.graph = self.logits = None

    def forward(self):
        x = self.embed[self.tokens]
        b, d = x.shape
        bias = torch.where(self.slots <= self.pos, 0.0, -math.inf).to(x.dtype)
        for w in self.layers:
            q, k, v = F.linear(F.rms_norm(x, (d,), w["n1"]), w["qkv"]).split(
                [self.heads * self.hd, self.kv * self.hd, self.kv * self.hd], -1)
            w["k"].index_copy_(2, self.pos, k.view(b, self.kv, 1, self.hd))
            w["v"].index_copy_(2, self.pos, v.view(b, self.kv, 1, self.hd))
            q = q.reshape(b, self.kv, self.heads // self.kv, self.hd) * self.hd ** -0.5
            att = (q @ w["k"].transpose(-1, -2) + bias).softmax(-1) @ w["v"]
            x = x + F.linear(att.reshape(b, d), w["o"])
            g, u = F.linear(F.rms_norm(x, (d,), w["n2"]), w["in"]).chunk(2, -1)
            x = x + F.linear(F.silu(g) * u, w["out"])
        return F.linear(F.rms_norm(x, (d,)), self.head)

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.forward()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.logits = self.forward()

    def __call__(self):
        if self.graph is None:
            return self.forward()
        self.graph.replay()
        return self.logits


def sample(logits, temperature, top_p_floor):
    probs = (logits / temperature).softmax(-1)
    probs = torch.where(probs < top_p_floor * probs.amax(-1, keepdim=True), 0.0, probs)
    return torch.multinomial(probs, 1).squeeze(-1)


@torch.no_grad()
def build(args, device):
    tiny = device.type == "cpu"
    torch.manual_seed(0)
    if tiny:
        vocab, batch, model = 4000, 3, Decoder(4000, 64, 128, 4, 2, 2, 3, 64, device, torch.float32)
    else:
        vocab, batch = 128256, 16
        model = Decoder(vocab, 4096, 11008, 32, 8, 32, batch, 1024, device, torch.bfloat16)
        model.capture()
    grammar = Grammar(vocab)
    # -- variant
    constrain = {"slow": AdmittedTokens, "fixed": StateTable}[args.variant](grammar, device)
    # --
    rng = random.Random(1)
    run = {"pos": 32, "states": [rng.choice([0, 1, 3, 3]) for _ in range(batch)], "out": [[] for _ in range(batch)]}

    @torch.no_grad()
    def step():
        model.pos.fill_(run["pos"])
        logits = constrain(model().float(), run["states"])
        tokens = sample(logits, 0.8, 0.02)
        model.tokens.copy_(tokens)
        picked = tokens.tolist()
        run["states"] = grammar.advance(run["states"], picked)
        for seq, t in zip(run["out"], picked):
            seq.append(t)
        run["pos"] += 1
        if run["pos"] == model.window:
            run["pos"], run["out"] = 32, [[] for _ in range(batch)]

    return step


def measure(program, args, step, device):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for _ in range(args.warmup):
        step()
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step()
        marks.append(time.perf_counter())
        if args.max_seconds and marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    end = time.perf_counter()
    gaps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": program, "variant": args.variant, "steps": len(gaps),
        "step_ms_mean": round((end - marks[0]) * 1e3 / len(gaps), 3),
        "step_ms_median": round(statistics.median(gaps) * 1e3, 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for _ in range(6):
                step()
                prof.step()


def parse_args(variants, steps, tiny_steps=4, warmup=5):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    args = p.parse_args()
    if args.steps is None:
        args.steps = steps[args.variant] if args.device == "cuda" else tiny_steps
    args.warmup = warmup if args.device == "cuda" else 1
    return args


if __name__ == "__main__":
    args = parse_args(["slow", "fixed"], {"slow": 350, "fixed": 1600})
    device = torch.device(args.device)
    measure("s04", args, build(args, device), device)
