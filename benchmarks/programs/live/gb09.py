"""Low-batch token streaming from a wide decoder: one captured graph per token, host looks at every token for stops."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gb09"
CHOICES = ["healthy"]
DEFAULT_STEPS = 600
WARMUP = 3


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


class WideLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.dim = heads, dim
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x, keys, values, at, bias):
        b = x.shape[0]
        q, k, v = self.qkv(self.norm1(x)).view(b, 3, self.heads, self.dim // self.heads).unbind(1)
        keys.index_copy_(2, at, k.unsqueeze(2))
        values.index_copy_(2, at, v.unsqueeze(2))
        y = F.scaled_dot_product_attention(q.unsqueeze(2), keys, values, attn_mask=bias)
        x = x + self.out(y.reshape(b, self.dim))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class WideDecoder(nn.Module):
    def __init__(self, vocab, dim, depth, heads, batch, length):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.position = nn.Embedding(length, dim)
        self.layers = nn.ModuleList(WideLayer(dim, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.register_buffer("cache", torch.zeros(depth, 2, batch, heads, length, dim // heads))
        table = torch.full((length, length), float("-inf")).triu_(1)
        self.register_buffer("visible", table)
        self.batch = batch

    def forward(self, tokens, at):
        bias = self.visible.index_select(0, at).view(1, 1, 1, -1).expand(self.batch, -1, -1, -1)
        x = self.embed(tokens) + self.position(at)
        for layer, (keys, values) in zip(self.layers, self.cache):
            x = layer(x, keys, values, at, bias)
        return self.head(self.norm(x))


class TokenGraph:
    """The forward pass, greedy choice and position increment as one replayable unit."""

    def __init__(self, model, device):
        self.model, self.device = model, device
        self.tokens = torch.zeros(model.batch, dtype=torch.long, device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.graph = None
        if device.type == "cuda":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    self.body()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.body()
        self.rewind()

    def body(self):
        logits = self.model(self.tokens, self.at)
        self.tokens.copy_(logits.argmax(dim=-1))
        self.at.add_(1)

    def rewind(self):
        self.at.zero_()

    def advance(self):
        if self.graph is None:
            self.body()
        else:
            self.graph.replay()
        return self.tokens.tolist()


class StreamingService:
    def __init__(self, device):
        big = device.type == "cuda"
        vocab, dim, depth, heads = (32_000, 8192, 12, 64) if big else (256, 64, 2, 2)
        self.batch, self.length, self.burst = (4, 160, 8) if big else (2, 16, 3)
        torch.set_default_dtype(torch.bfloat16 if big else torch.float32)
        with torch.device(device):
            self.model = WideDecoder(vocab, dim, depth, heads, self.batch, self.length).eval()
        torch.set_default_dtype(torch.float32)
        self.model.requires_grad_(False)
        with torch.no_grad():
            self.unit = TokenGraph(self.model, device)
        self.stops = set(range(0, vocab, 97))
        self.streams = [[] for _ in range(self.batch)]
        self.position, self.closed = 0, 0

    def deliver(self, chosen):
        for row, token in enumerate(chosen):
            self.streams[row].append(token)
            if token in self.stops:
                self.closed += 1
                self.streams[row] = []

    @torch.no_grad()
    def step(self):
        for _ in range(self.burst):
            self.deliver(self.unit.advance())
            self.position += 1
            if self.position == self.length - 3:
                self.unit.rewind()
                self.position = 0
                self.streams = [[] for _ in range(self.batch)]


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    service = StreamingService(device)
    run_loop(args, device, service.step)
    print(json.dumps({"closed": service.closed}))


if __name__ == "__main__":
    main()
