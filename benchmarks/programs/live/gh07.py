"""Token-by-token completion server with a static cache."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gh07"
CHOICES = ["healthy"]
DEFAULT_STEPS = 450
WARMUP = 3


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=30.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(min(WARMUP, max(1, args.steps))):
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

class DecoderLayer(nn.Module):
    def __init__(self, width, inner, heads, batch, slots):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        shape = (batch, heads, slots, width // heads)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def forward(self, x, place, mask):
        b, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, 3, self.heads, 1, d // self.heads).unbind(1)
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = x + self.out(y.reshape(b, d))
        gate, up = self.gate_up(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, vocab, width, inner, heads, depth, batch, slots):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(slots, width)
        self.layers = nn.ModuleList(DecoderLayer(width, inner, heads, batch, slots) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.register_buffer("order", torch.arange(slots))

    def forward(self, token, place):
        x = self.embed(token) + self.positions(place)
        mask = (self.order <= place).view(1, 1, 1, -1)
        for layer in self.layers:
            x = layer(x, place, mask)
        return self.head(self.norm(x)).argmax(-1)


class Engine:
    """Keeps one captured token step and replays it."""

    def __init__(self, model, batch, device, stop):
        self.model, self.device, self.stop = model, device, stop
        self.token = torch.zeros(batch, dtype=torch.long, device=device)
        self.place = torch.zeros(1, dtype=torch.long, device=device)
        self.finished = torch.zeros(batch, dtype=torch.bool, device=device)
        self.graph = None
        if device.type == "cuda":
            self.capture()

    def advance(self):
        following = self.model(self.token, self.place)
        self.finished |= following == self.stop
        self.token.copy_(following)
        self.place += 1

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.advance()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.advance()

    def tick(self):
        if self.graph is None:
            self.advance()
        else:
            self.graph.replay()

    def begin(self, seed_tokens, start):
        self.token.copy_(seed_tokens)
        self.place.fill_(start)
        self.finished.zero_()


class Server:
    def __init__(self, engine, batch, vocab, start, length):
        self.engine, self.start, self.length = engine, start, length
        g = torch.Generator().manual_seed(2)
        self.prompts = torch.randint(0, vocab, (32, batch), generator=g)
        self.served, self.lengths, self.sink = 0, [], []

    @torch.inference_mode()
    def burst(self):
        self.engine.begin(self.prompts[self.served % len(self.prompts)], self.start)
        produced = []
        for _ in range(self.length):
            self.engine.tick()
            produced.append(self.engine.token.tolist())
            if bool(self.engine.finished.all()):
                break
        self.served += 1
        self.lengths.append(len(produced))
        self.sink = [list(row) for row in zip(*produced)]


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        vocab, width, inner, heads, depth, batch, slots, start, length = 32000, 8192, 28672, 64, 8, 8, 128, 112, 16
        dtype = torch.bfloat16
    else:
        vocab, width, inner, heads, depth, batch, slots, start, length = 500, 64, 160, 4, 2, 2, 32, 16, 4
        dtype = torch.float32
    torch.set_default_dtype(dtype)
    with torch.inference_mode(), device:
        model = Decoder(vocab, width, inner, heads, depth, batch, slots).eval()
        engine = Engine(model, batch, device, stop=vocab + 1)
    server = Server(engine, batch, vocab, start, length)
    run_loop(args, device, server.burst)


if __name__ == "__main__":
    main()
