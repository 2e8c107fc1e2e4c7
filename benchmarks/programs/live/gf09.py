"""Serves token-by-token generation from a wide decoder; one step emits one token for each running request."""
import argparse
import collections
import json
import statistics
import time

import torch
import torch.nn.functional as F

PROGRAM = "gf09"
CHOICES = ["healthy"]
DEFAULT_STEPS = 5000
MAX_SECONDS = 42.0
WARMUP = 4

Shape = collections.namedtuple("Shape", "dim heads kv_heads ffn layers vocab batch length")


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

def rms_norm(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, 1e-6)


class Layer:
    def __init__(self, s, make, device, dtype):
        hd = s.dim // s.heads
        self.s, self.hd = s, hd
        self.n1, self.n2 = torch.ones(s.dim, device=device, dtype=dtype), torch.ones(s.dim, device=device, dtype=dtype)
        self.wq, self.wo = make(s.dim, s.dim), make(s.dim, s.dim)
        self.wkv = make(2 * s.kv_heads * hd, s.dim)
        self.gate, self.up, self.down = make(s.ffn, s.dim), make(s.ffn, s.dim), make(s.dim, s.ffn)
        self.keys = torch.zeros(s.batch, s.kv_heads, s.length, hd, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)

    def __call__(self, x, slot, mask):
        s = self.s
        h = rms_norm(x, self.n1)
        q = F.linear(h, self.wq).view(s.batch, s.kv_heads, s.heads // s.kv_heads, self.hd)
        k, v = F.linear(h, self.wkv).view(s.batch, 2, s.kv_heads, 1, self.hd).unbind(1)
        self.keys.index_copy_(2, slot, k)
        self.values.index_copy_(2, slot, v)
        score = torch.matmul(q, self.keys.transpose(-1, -2)) * self.hd ** -0.5 + mask
        ctx = torch.matmul(torch.softmax(score, dim=-1), self.values).reshape(s.batch, s.dim)
        x = x + F.linear(ctx, self.wo)
        h = rms_norm(x, self.n2)
        return x + F.linear(F.silu(F.linear(h, self.gate)) * F.linear(h, self.up), self.down)


class Decoder:
    def __init__(self, shape, device, dtype):
        self.shape, self.device = shape, device

        def make(rows, cols):
            return torch.empty(rows, cols, device=device, dtype=dtype).normal_(0, 0.6 * cols ** -0.5)

        self.embed, self.head = make(shape.vocab, shape.dim), make(shape.vocab, shape.dim)
        self.layers = [Layer(shape, make, device, dtype) for _ in range(shape.layers)]
        self.norm = torch.ones(shape.dim, device=device, dtype=dtype)
        self.arange = torch.arange(shape.length, device=device)
        self.dtype = dtype

    def __call__(self, tokens, slot):
        x = F.embedding(tokens, self.embed)
        mask = torch.zeros(self.shape.length, device=self.device, dtype=self.dtype)
        mask.masked_fill_(self.arange > slot, float("-inf"))
        for layer in self.layers:
            x = layer(x, slot, mask)
        return F.linear(rms_norm(x, self.norm), self.head).float()


class Runner:
    """Holds the static buffers of the decoder and replays it."""

    def __init__(self, decoder):
        s, device = decoder.shape, decoder.device
        self.decoder = decoder
        self.tokens = torch.zeros(s.batch, dtype=torch.long, device=device)
        self.slot = torch.zeros(1, dtype=torch.long, device=device)
        self.graph = None
        if device.type == "cuda":
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    decoder(self.tokens, self.slot)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.logits = decoder(self.tokens, self.slot)

    def __call__(self, tokens, position):
        self.tokens.copy_(tokens)
        self.slot.fill_(position)
        if self.graph is None:
            return self.decoder(self.tokens, self.slot)
        self.graph.replay()
        return self.logits


class Request:
    def __init__(self, ident, stop):
        self.ident, self.stop, self.ids = ident, stop, []

    def accept(self, token):
        self.ids.append(token)
        return token in self.stop


class Server:
    def __init__(self, runner):
        self.runner = runner
        s = runner.decoder.shape
        self.position, self.served, self.log = 0, 0, collections.deque(maxlen=200)
        self.tokens = torch.ones(s.batch, dtype=torch.long, device=runner.decoder.device)
        self.requests = [Request(i, {2, 3}) for i in range(s.batch)]

    def choose(self, logits, temperature=0.9, k=50):
        top, index = torch.topk(logits, k, dim=-1)
        pick = torch.multinomial(torch.softmax(top / temperature, dim=-1), 1)
        return index.gather(-1, pick).squeeze(-1)

    @torch.inference_mode()
    def step(self):
        begun = time.perf_counter()
        logits = self.runner(self.tokens, self.position)
        self.tokens = self.choose(logits)
        for i, token in enumerate(self.tokens.tolist()):
            if self.requests[i].accept(token):
                self.served += 1
                self.requests[i] = Request(self.served + len(self.requests), {2, 3})
        self.position = (self.position + 1) % self.runner.decoder.shape.length
        self.log.append({"position": self.position, "seconds": time.perf_counter() - begun})


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cpu":
        shape, dtype = Shape(64, 4, 2, 128, 2, 200, 4, 32), torch.float32
    else:
        shape, dtype = Shape(12288, 96, 8, 49152, 6, 32000, 16, 1024), torch.bfloat16
    with torch.inference_mode():
        server = Server(Runner(Decoder(shape, device, dtype)))
    run_loop(args, device, server.step)


if __name__ == "__main__":
    main()
