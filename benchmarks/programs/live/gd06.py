"""Batched text generation with a static key/value cache and a repetition constraint."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gd06"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 4000
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=45.0)
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


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, cache, start, mask):
        n, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        end = start + length
        cache[0, :, :, start:end] = k
        cache[1, :, :, start:end] = v
        y = F.scaled_dot_product_attention(q, cache[0, :, :, :end], cache[1, :, :, :end], is_causal=mask)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, vocab, dim, heads, depth, context):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens, caches, start):
        length = tokens.shape[1]
        x = self.token(tokens) + self.position.weight[start:start + length]
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, start, length > 1)
        return F.linear(self.norm(x[:, -1]), self.token.weight)


class PhraseGuard:
    """Forbids tokens which would complete a phrase of `size` tokens that a sequence already holds."""

    def __init__(self, size):
        self.size = size
        self.tables = []

    def begin(self, histories):
        self.tables = [self.tabulate(h) for h in histories]

    def tabulate(self, history):
        table = {}
        for phrase in zip(*(history[i:] for i in range(self.size))):
            table.setdefault(phrase[:-1], []).append(phrase[-1])
        return table

    def extend(self, histories):
        for table, history in zip(self.tables, histories):
            phrase = tuple(history[-self.size:])
            table.setdefault(phrase[:-1], []).append(phrase[-1])

    def forbidden(self, histories):
        rows, cols = [], []
        for row, (table, history) in enumerate(zip(self.tables, histories)):
            tokens = table.get(tuple(history[1 - self.size:]), ())
            rows.extend([row] * len(tokens))
            cols.extend(tokens)
        return rows, cols


class Generation:
    def __init__(self, model, batch, prompt, total, vocab, device, variant):
        self.model, self.batch, self.prompt, self.total = model, batch, prompt, total
        self.vocab, self.device, self.variant = vocab, device, variant
        layer = model.layers[0]
        dim = model.norm.normalized_shape[0]
        self.caches = [torch.zeros(2, batch, layer.heads, total, dim // layer.heads, device=device,
                                   dtype=model.norm.weight.dtype) for _ in model.layers]
        self.guard = PhraseGuard(3)
        self.served = 0
        self.admit()

    def admit(self):
        prompts = torch.randint(self.vocab, (self.batch, self.prompt), device=self.device)
        self.histories = prompts.tolist()
        self.guard.begin(self.histories)
        self.feed, self.at = prompts, 0

    def constrain(self, logits):
        if self.variant == "slow":
            self.guard.begin(self.histories)
        rows, cols = self.guard.forbidden(self.histories)
        if rows:
            spots = torch.tensor([rows, cols]).to(self.device)
            logits[spots[0], spots[1]] = float("-inf")
        return logits

    def choose(self, logits, temperature=0.8, keep=40):
        values, indices = torch.topk(logits / temperature, keep)
        picked = torch.multinomial(values.softmax(-1), 1)
        return indices.gather(1, picked)

    @torch.inference_mode()
    def step(self):
        logits = self.model(self.feed, self.caches, self.at).float()
        self.at += self.feed.shape[1]
        chosen = self.choose(self.constrain(logits))
        for history, token in zip(self.histories, chosen[:, 0].tolist()):
            history.append(token)
        if self.variant == "fixed":
            self.guard.extend(self.histories)
        self.feed = chosen
        if len(self.histories[0]) >= self.total:
            self.served += self.batch
            self.admit()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    vocab, dim, heads, depth = (32000, 1024, 16, 12) if big else (100, 16, 2, 1)
    batch, prompt, total = (24, 384, 1024) if big else (2, 8, 16)
    model = Decoder(vocab, dim, heads, depth, total)
    model = model.to(device=device, dtype=torch.bfloat16 if big else torch.float32).eval()
    run_loop(args, device, Generation(model, batch, prompt, total, vocab, device, args.variant).step)


if __name__ == "__main__":
    main()
