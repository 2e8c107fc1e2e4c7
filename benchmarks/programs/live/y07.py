"""Continuous-batching text generation with registered system prompts and longest-prefix-first scheduling."""
import argparse
import functools
import json
import random
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BLOCK = 16


def block_hashes(tokens):
    out, parent = [], 0
    for i in range(0, len(tokens) - BLOCK, BLOCK):
        parent = hash((parent, tuple(tokens[i:i + BLOCK])))
        out.append(parent)
    return out


class Request:
    def __init__(self, number, prompt, max_new):
        self.number, self.prompt, self.max_new = number, prompt, max_new
        self.made = []

    @functools.cached_property
    def prefix_keys(self):
        return block_hashes(self.prompt)


def keys_of_prompt(request):
    return block_hashes(request.prompt)


def keys_of_request(request):
    return request.prefix_keys


class PrefixStore:
    """Keys and values of the registered prompts, in blocks found by the hash of all that precedes them."""

    def __init__(self):
        self.index, self.rows = {}, []

    def add(self, tokens, k, v):
        for i, key in enumerate(block_hashes(tokens)):
            if key not in self.index:
                self.index[key] = len(self.rows)
                self.rows.append((k[:, :, i * BLOCK:(i + 1) * BLOCK], v[:, :, i * BLOCK:(i + 1) * BLOCK]))

    def match(self, keys):
        n = 0
        for key in keys:
            if key not in self.index:
                break
            n += 1
        return n

    def load(self, keys):
        found = [self.rows[self.index[key]] for key in keys]
        return torch.cat([k for k, _ in found], 2), torch.cat([v for _, v in found], 2)


class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, store, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).unbind(2)
        keys, values = store(k, v)
        a = F.scaled_dot_product_attention(q.transpose(1, 2), keys, values, attn_mask=mask)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Engine:
    def __init__(self, vocab, d, heads, depth, slots, ctx, device, dtype):
        self.embed = nn.Embedding(vocab, d).to(device, dtype)
        self.pos = nn.Embedding(ctx, d).to(device, dtype)
        self.layers = [Layer(d, heads).to(device, dtype) for _ in range(depth)]
        self.norm = nn.LayerNorm(d).to(device, dtype)
        self.k = torch.zeros(depth, slots, heads, ctx, d // heads, device=device, dtype=dtype)
        self.v = torch.zeros_like(self.k)
        self.device, self.ctx = device, ctx
        self.range = torch.arange(ctx, device=device)
        self.slot_ids = torch.arange(slots, device=device)
        self.last = torch.zeros(slots, dtype=torch.long, device=device)
        self.length = torch.zeros(slots, dtype=torch.long, device=device)

    def pick(self, x):
        logits = F.linear(self.norm(x), self.embed.weight).float()
        return torch.multinomial(torch.softmax(logits / 0.8, -1), 1).squeeze(-1)

    def prefill(self, slot, tokens, start):
        end = len(tokens)
        ids = torch.tensor(tokens[start:], device=self.device)
        x = (self.embed(ids) + self.pos.weight[start:end])[None]
        mask = self.range[:end] <= self.range[start:end, None]
        for i, layer in enumerate(self.layers):
            def store(k, v, i=i):
                self.k[i, slot, :, start:end] = k[0].transpose(0, 1)
                self.v[i, slot, :, start:end] = v[0].transpose(0, 1)
                return self.k[i, slot:slot + 1, :, :end], self.v[i, slot:slot + 1, :, :end]
            x = layer(x, store, mask)
        self.last[slot] = self.pick(x[0, -1:])[0]
        self.length[slot] = end

    def decode(self):
        at = self.length
        x = (self.embed(self.last) + self.pos(at))[:, None]
        mask = torch.zeros(len(at), 1, 1, self.ctx, device=self.device, dtype=x.dtype)
        mask.masked_fill_(self.range > at[:, None, None, None], float("-inf"))
        for i, layer in enumerate(self.layers):
            def store(k, v, i=i):
                self.k[i][self.slot_ids, :, at] = k[:, 0]
                self.v[i][self.slot_ids, :, at] = v[:, 0]
                return self.k[i], self.v[i]
            x = layer(x, store, mask)
        self.last = self.pick(x[:, 0])
        self.length = at + 1
        return self.last


class Run:
    def __init__(self, args):
        torch.manual_seed(0)
        self.rng = random.Random(0)
        cuda = args.device == "cuda"
        if cuda:
            self.vocab, d, heads, depth, slots, ctx, dtype = 32000, 1024, 16, 12, 64, 1536, torch.bfloat16
            self.queue_size, self.prompt_len, self.new_len, sizes = 96, (576, 1088), (48, 112), range(128, 513, 48)
        else:
            self.vocab, d, heads, depth, slots, ctx, dtype = 200, 32, 2, 2, 4, 256, torch.float32
            self.queue_size, self.prompt_len, self.new_len, sizes = 8, (80, 160), (4, 12), range(32, 65, 16)
        self.keys = {"slow": keys_of_prompt, "fixed": keys_of_request}[args.variant]
        with torch.inference_mode():
            self.engine = Engine(self.vocab, d, heads, depth, slots, ctx, args.device, dtype)
            self.prefixes = PrefixStore()
            self.system = [self.rng.choices(range(self.vocab), k=n // BLOCK * BLOCK + 1) for n in sizes]
            for tokens in self.system:
                self.engine.prefill(0, tokens, 0)
                n = len(tokens)
                self.prefixes.add(tokens, self.engine.k[:, 0, :, :n].clone(), self.engine.v[:, 0, :, :n].clone())
        self.free, self.running = list(range(slots)), {}
        self.waiting, self.numbers, self.done = [], 0, 0
        self.arrive()

    def arrive(self):
        while len(self.waiting) < self.queue_size:
            head = self.rng.choice(self.system)[:-1] if self.rng.random() < 0.8 else []
            tail = self.rng.choices(range(self.vocab), k=self.rng.randint(*self.prompt_len) - len(head))
            self.waiting.append(Request(self.numbers, head + tail, self.rng.randint(*self.new_len)))
            self.numbers += 1

    def schedule(self):
        cached = {r.number: self.prefixes.match(self.keys(r)) for r in self.waiting}
        self.waiting.sort(key=lambda r: (-cached[r.number], r.number))
        budget = 4
        while self.free and self.waiting and budget:
            request, slot = self.waiting.pop(0), self.free.pop()
            n = cached[request.number]
            if n:
                k, v = self.prefixes.load(self.keys(request)[:n])
                self.engine.k[:, slot, :, :n * BLOCK], self.engine.v[:, slot, :, :n * BLOCK] = k, v
            self.engine.prefill(slot, request.prompt, n * BLOCK)
            self.running[slot] = request
            budget -= 1

    @torch.inference_mode()
    def step(self):
        self.schedule()
        tokens = self.engine.decode().tolist()
        for slot, request in list(self.running.items()):
            request.made.append(tokens[slot])
            if len(request.made) >= request.max_new:
                del self.running[slot]
                self.free.append(slot)
                self.engine.length[slot] = 0
                self.done += 1
        self.arrive()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=900)
    p.add_argument("--max-seconds", type=float, default=1e9)
    p.add_argument("--trace")
    args = p.parse_args()
    run = Run(args)
    sync = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)

    for _ in range(100):
        run.step()
    sync()
    times, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        run.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if now - start > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - start) / len(times)
    print(json.dumps({"program": "y07", "variant": args.variant, "steps": len(times),
                      "step_ms_mean": round(1e3 * mean, 3),
                      "step_ms_median": round(1e3 * statistics.median(times), 3)}), flush=True)

    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if args.device == "cuda" else [])
        with profile(activities=acts, schedule=schedule(wait=0, warmup=2, active=4), record_shapes=True,
                     with_stack=True, with_modules=True,
                     on_trace_ready=lambda prof: prof.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                run.step()
                prof.step()


if __name__ == "__main__":
    main()
