"""Text generation server loop: token-by-token decoding with a preallocated cache."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gc10"
CHOICES = ["healthy"]
DEFAULT_STEPS = 650
DEFAULT_SECONDS = 50.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=DEFAULT_SECONDS)
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


class DecoderLayer(nn.Module):
    def __init__(self, dim, hidden, heads, batch, longest):
        super().__init__()
        self.heads, self.width = heads, dim // heads
        self.norm1, self.norm2 = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.ones(dim))
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.gate_up = nn.Linear(dim, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)
        self.register_buffer("keys", torch.zeros(batch, heads, longest, self.width))
        self.register_buffer("values", torch.zeros(batch, heads, longest, self.width))

    def forward(self, x, at, mask, turn):
        b, c = x.shape
        q, k, v = self.qkv(F.rms_norm(x, (c,), self.norm1)).view(b, 3, self.heads, 1, self.width).unbind(1)
        q, k = rotate(q, turn), rotate(k, turn)
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, v)
        a = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        x = x + self.out(a.reshape(b, c))
        gate, up = self.gate_up(F.rms_norm(x, (c,), self.norm2)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, turn):
    cos, sin = turn
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Decoder(nn.Module):
    def __init__(self, vocab, dim, hidden, heads, depth, batch, longest):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([DecoderLayer(dim, hidden, heads, batch, longest) for _ in range(depth)])
        self.norm = nn.Parameter(torch.ones(dim))
        self.head = nn.Linear(dim, vocab, bias=False)
        half = dim // heads // 2
        angle = torch.arange(longest)[:, None] * (10000.0 ** (-torch.arange(half) / half))[None]
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        self.register_buffer("slots", torch.arange(longest, dtype=torch.int32), persistent=False)

    def forward(self, token, at):
        x = self.embed(token)
        mask = (self.slots <= at).expand(1, 1, 1, -1)
        turn = self.cos.index_select(0, at), self.sin.index_select(0, at)
        for layer in self.layers:
            x = layer(x, at, mask, turn)
        return self.head(F.rms_norm(x, x.shape[-1:], self.norm))


class Session:
    """Holds the buffers of one running batch; advance() produces one token for each sequence."""

    def __init__(self, model, batch, longest, device):
        self.model, self.longest, self.device = model, longest, device
        self.token = torch.zeros(batch, dtype=torch.long, device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.graph = None
        self.position = 0

    def one(self):
        logits = self.model(self.token, self.at)
        self.token.copy_(logits.argmax(-1))
        self.at.add_(1)

    def prepare(self):
        if self.device.type != "cuda":
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.one()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.one()

    def begin(self, first):
        self.token.copy_(first)
        self.at.zero_()
        self.position = 0

    def advance(self):
        if self.graph is not None:
            self.graph.replay()
        else:
            self.one()
        self.position += 1


class Server:
    def __init__(self, session, vocab, batch, chunk, stop):
        self.session, self.vocab, self.batch, self.chunk, self.stop = session, vocab, batch, chunk, stop
        self.gen = torch.Generator().manual_seed(2)
        self.texts = [[] for _ in range(batch)]
        self.finished = 0

    @torch.inference_mode()
    def admit(self):
        self.session.begin(torch.randint(0, self.vocab, (self.batch,), generator=self.gen))
        self.texts = [[] for _ in range(self.batch)]

    @torch.inference_mode()
    def serve_chunk(self):
        if self.session.position + self.chunk > self.session.longest:
            self.admit()
        for _ in range(self.chunk):
            self.session.advance()
            for text, token in zip(self.texts, self.session.token.tolist()):
                text.append(token)
                if token == self.stop:
                    self.finished += 1


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(5)
    big = device.type == "cuda"
    vocab, dim, hidden, heads, depth, batch, longest, chunk = \
        (32000, 8192, 22016, 64, 6, 4, 512, 16) if big else (128, 64, 128, 2, 2, 2, 32, 4)
    torch.set_default_dtype(torch.bfloat16 if big else torch.float32)
    with torch.device(device), torch.inference_mode():
        model = Decoder(vocab, dim, hidden, heads, depth, batch, longest).eval()
        session = Session(model, batch, longest, device)
        session.prepare()
    torch.set_default_dtype(torch.float32)
    server = Server(session, vocab, batch, chunk, stop=1)
    server.admit()
    run_loop(args, device, server.serve_chunk)


if __name__ == "__main__":
    main()
