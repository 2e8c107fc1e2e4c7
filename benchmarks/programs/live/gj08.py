"""Token-by-token decoding service with a fixed set of slots; finished requests are replaced at once."""
import argparse
import json
import statistics
import time
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gj08"
CHOICES = ["healthy"]
DEFAULT_STEPS = 1100
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


class Weights:
    def __init__(self, device, dtype, width, heads, kv, hidden, depth, vocab):
        def w(*shape):
            return torch.empty(*shape, device=device, dtype=dtype).normal_(0, shape[-1] ** -0.5)

        self.width, self.heads, self.kv, self.dim = width, heads, kv, width // heads
        self.layers = [dict(qkv=w(width + 2 * kv * self.dim, width), out=w(width, width),
                            gate_up=w(2 * hidden, width), down=w(width, hidden)) for _ in range(depth)]
        self.embed = w(vocab, width)
        self.head = w(vocab, width)


class Decoder:
    def __init__(self, weights, slots, context, device, dtype):
        w = self.w = weights
        self.slots, self.context, self.device = slots, context, device
        shape = (slots, w.kv, context, w.dim)
        self.cache = [(torch.zeros(shape, device=device, dtype=dtype), torch.zeros(shape, device=device, dtype=dtype))
                      for _ in w.layers]
        self.tokens = torch.zeros(slots, dtype=torch.long, device=device)
        self.place = torch.zeros(slots, dtype=torch.long, device=device)
        self.rows = torch.arange(slots, device=device)
        self.columns = torch.arange(context, device=device)
        self.graph = None
        if device.type == "cuda":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    self.forward()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.forward()
            self.tokens.zero_()
            self.place.zero_()

    @torch.no_grad()
    def forward(self):
        w, b = self.w, self.slots
        x = w.embed[self.tokens]
        bias = torch.where(self.columns[None] <= self.place[:, None], 0.0, -1e4).to(x.dtype)[:, None, None]
        for layer, (keys, values) in zip(w.layers, self.cache):
            q, k, v = F.linear(F.rms_norm(x, (w.width,)), layer["qkv"]).split(
                [w.width, w.kv * w.dim, w.kv * w.dim], dim=1)
            keys[self.rows, :, self.place] = k.view(b, w.kv, w.dim)
            values[self.rows, :, self.place] = v.view(b, w.kv, w.dim)
            q = q.view(b, w.kv, w.heads // w.kv, w.dim) * w.dim ** -0.5
            p = (q @ keys.mT + bias).softmax(-1)
            x = x + F.linear((p @ values).reshape(b, w.width), layer["out"])
            g, u = F.linear(F.rms_norm(x, (w.width,)), layer["gate_up"]).chunk(2, 1)
            x = x + F.linear(F.silu(g) * u, layer["down"])
        logits = F.linear(F.rms_norm(x, (w.width,)), w.head).float()
        noise = torch.empty_like(logits).exponential_()
        self.tokens.copy_((logits.softmax(-1) / noise).argmax(-1))
        self.place.add_(1)

    def advance(self):
        if self.graph is not None:
            self.graph.replay()
        else:
            self.forward()
        return self.tokens.tolist()

    def reset(self, slot, token):
        self.tokens[slot] = token
        self.place[slot] = 0


class Conversation:
    def __init__(self, limit):
        self.limit, self.text = limit, []

    def push(self, token):
        self.text.append(token)
        return len(self.text) >= self.limit


class Front:
    def __init__(self, decoder, seed=0):
        self.decoder = decoder
        self.rng = random.Random(seed)
        self.active = [self.fresh() for _ in range(decoder.slots)]
        self.finished = 0

    def fresh(self):
        top = self.decoder.context - 1
        return Conversation(self.rng.randint(top // 2, top))

    def tick(self):
        for slot, token in enumerate(self.decoder.advance()):
            if self.active[slot].push(token):
                self.finished += 1
                self.active[slot] = self.fresh()
                self.decoder.reset(slot, self.rng.randrange(100))


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    dtype = torch.bfloat16 if big else torch.float32
    if big:
        weights = Weights(device, dtype, 8192, 64, 8, 28672, 6, 32000)
    else:
        weights = Weights(device, dtype, 64, 4, 2, 128, 2, 200)
    front = Front(Decoder(weights, 32 if big else 4, 256 if big else 16, device, dtype))

    def step():
        for _ in range(8):
            front.tick()

    run_loop(args, device, step)
    print(f"# {front.finished} conversations", flush=True)


if __name__ == "__main__":
    main()
