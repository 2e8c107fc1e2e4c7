"""Token server with a fixed number of slots: a large decoder produces one token per slot and turn."""
import argparse
import json
import random
import statistics
import time
from collections import deque

import torch
import torch.nn.functional as F

PROGRAM = "gl06"
CHOICES = ["healthy"]
DEFAULT_STEPS = 600
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


class Weights:
    def __init__(self, layers, width, hidden, heads, kv_heads, vocab, span, device, dtype):
        def normal(*shape):
            return torch.empty(shape, device=device, dtype=dtype).normal_(std=0.02)

        self.layers, self.width, self.hidden = layers, width, hidden
        self.heads, self.kv_heads, self.dim = heads, kv_heads, width // heads
        self.embed = normal(vocab, width)
        self.place = normal(span, width)
        self.head = normal(vocab, width)
        self.qkv = [normal(width + 2 * kv_heads * self.dim, width) for _ in range(layers)]
        self.out = [normal(width, width) for _ in range(layers)]
        self.gate_up = [normal(2 * hidden, width) for _ in range(layers)]
        self.down = [normal(width, hidden) for _ in range(layers)]
        self.norms = [torch.ones(width, device=device, dtype=dtype) for _ in range(2 * layers + 1)]


class Decoder:
    """One turn over static buffers, so that it can be recorded and replayed."""

    def __init__(self, w, slots, span, device, dtype):
        self.w, self.slots, self.span = w, slots, span
        shape = (slots, w.kv_heads, span, w.dim)
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(w.layers)]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in range(w.layers)]
        self.token = torch.zeros(slots, dtype=torch.long, device=device)
        self.position = torch.zeros(slots, dtype=torch.long, device=device)
        self.chosen = torch.zeros(slots, dtype=torch.long, device=device)
        self.rows = torch.arange(slots, device=device)
        self.columns = torch.arange(span, device=device)
        self.graph = None
        self.device = device

    def layer(self, i, x, mask):
        w = self.w
        h = F.rms_norm(x, (w.width,), w.norms[2 * i])
        q, k, v = F.linear(h, w.qkv[i]).split([w.width, w.kv_heads * w.dim, w.kv_heads * w.dim], dim=-1)
        self.keys[i][self.rows, :, self.position] = k.view(self.slots, w.kv_heads, w.dim)
        self.values[i][self.rows, :, self.position] = v.view(self.slots, w.kv_heads, w.dim)
        q = q.view(self.slots, w.kv_heads, w.heads // w.kv_heads, w.dim)
        y = F.scaled_dot_product_attention(q, self.keys[i], self.values[i], attn_mask=mask)
        x = torch.addmm(x, y.reshape(self.slots, w.width), w.out[i].t())
        h = F.rms_norm(x, (w.width,), w.norms[2 * i + 1])
        gate, up = F.linear(h, w.gate_up[i]).chunk(2, dim=-1)
        return torch.addmm(x, F.silu(gate).mul_(up), w.down[i].t())

    def turn(self):
        w = self.w
        x = F.embedding(self.token, w.embed) + F.embedding(self.position, w.place)
        live = self.columns <= self.position.unsqueeze(1)
        mask = torch.zeros(live.shape, dtype=x.dtype, device=x.device).masked_fill_(~live, float("-inf"))
        mask = mask[:, None, None, :].expand(-1, w.kv_heads, w.heads // w.kv_heads, -1)
        for i in range(w.layers):
            x = self.layer(i, x, mask)
        logits = F.linear(F.rms_norm(x, (w.width,), w.norms[-1]), w.head)
        self.chosen.copy_(logits.argmax(dim=-1))

    def record(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.turn()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.turn()

    def __call__(self, tokens, positions):
        self.token.copy_(torch.tensor(tokens))
        self.position.copy_(torch.tensor(positions))
        if self.graph is not None:
            self.graph.replay()
        else:
            self.turn()
        return self.chosen.tolist()


class Request:
    def __init__(self, number, prompt, limit):
        self.number, self.prompt, self.limit = number, prompt, limit
        self.written = []

    def feed(self, index):
        return self.prompt[index] if index < len(self.prompt) else self.written[-1]


class Server:
    def __init__(self, decoder, vocab, longest_prompt, longest_answer):
        self.decoder, self.vocab = decoder, vocab
        self.rng = random.Random(2)
        self.longest_prompt, self.longest_answer = longest_prompt, longest_answer
        self.queue, self.numbers, self.finished = deque(), 0, 0
        self.slots = [self.take() for _ in range(decoder.slots)]
        self.positions = [0] * decoder.slots

    def take(self):
        if not self.queue:
            for _ in range(16):
                size = self.rng.randint(8, self.longest_prompt)
                prompt = [self.rng.randrange(self.vocab) for _ in range(size)]
                self.queue.append(Request(self.numbers, prompt, self.rng.randint(16, self.longest_answer)))
                self.numbers += 1
        return self.queue.popleft()

    def turn(self):
        tokens = [r.feed(p) for r, p in zip(self.slots, self.positions)]
        chosen = self.decoder(tokens, self.positions)
        for s, request in enumerate(self.slots):
            self.positions[s] += 1
            if self.positions[s] >= len(request.prompt):
                request.written.append(chosen[s])
                if len(request.written) >= request.limit:
                    self.finished += 1
                    self.slots[s], self.positions[s] = self.take(), 0


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    shape = dict(layers=10, width=8192, hidden=22016, heads=64, kv_heads=8, vocab=32000, span=256)
    slots, dtype, turns = 8, torch.bfloat16, 16
    if device.type == "cpu":
        shape = dict(layers=2, width=64, hidden=128, heads=4, kv_heads=2, vocab=100, span=64)
        slots, dtype, turns = 2, torch.float32, 4
    with torch.inference_mode():
        weights = Weights(device=device, dtype=dtype, **shape)
        decoder = Decoder(weights, slots, shape["span"], device, dtype)
        if device.type == "cuda":
            decoder.record()
        server = Server(decoder, shape["vocab"], shape["span"] // 2, shape["span"] // 2 - 1)

        def step():
            for _ in range(turns):
                server.turn()

        run_loop(args, device, step)


if __name__ == "__main__":
    main()
