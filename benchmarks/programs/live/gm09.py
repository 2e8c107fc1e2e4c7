"""Chat service: a batch of conversations is decoded token by token, with stop handling after each token."""
import argparse
import json
import random
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gm09"
CHOICES = ["healthy"]
DEFAULT_STEPS = 300
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


class Config:
    def __init__(self, small):
        self.layers, self.width, self.ffn = (2, 64, 128) if small else (8, 8192, 28672)
        self.heads, self.groups = (8, 2) if small else (64, 8)
        self.vocab = 400 if small else 32000
        self.rows, self.window = (4, 64) if small else (32, 512)
        self.tokens = 4 if small else 32
        self.head_dim = self.width // self.heads


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        kv = cfg.groups * cfg.head_dim
        self.norm1, self.norm2 = nn.RMSNorm(cfg.width), nn.RMSNorm(cfg.width)
        self.qkv = nn.Linear(cfg.width, cfg.width + 2 * kv, bias=False)
        self.out = nn.Linear(cfg.width, cfg.width, bias=False)
        self.gate_up = nn.Linear(cfg.width, 2 * cfg.ffn, bias=False)
        self.down = nn.Linear(cfg.ffn, cfg.width, bias=False)
        shape = (cfg.rows, cfg.groups, cfg.window, cfg.head_dim)
        self.register_buffer("k", torch.zeros(shape))
        self.register_buffer("v", torch.zeros(shape))

    def forward(self, x, at, mask):
        c = self.cfg
        kv = c.groups * c.head_dim
        q, k, v = self.qkv(self.norm1(x)).split([c.width, kv, kv], -1)
        self.k.index_copy_(2, at, k.view(c.rows, c.groups, 1, c.head_dim))
        self.v.index_copy_(2, at, v.view(c.rows, c.groups, 1, c.head_dim))
        q = q.view(c.rows, c.groups, c.heads // c.groups, c.head_dim)
        y = F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask)
        x = x + self.out(y.reshape(c.rows, c.width))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.embed = nn.Embedding(cfg.vocab, cfg.width)
        self.places = nn.Embedding(cfg.window, cfg.width)
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg.layers))
        self.norm = nn.RMSNorm(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.vocab, bias=False)
        self.register_buffer("slots", torch.arange(cfg.window))

    def forward(self, ids, at):
        x = self.embed(ids) + self.places(at)
        mask = torch.zeros(self.slots.shape, dtype=x.dtype, device=x.device).masked_fill(self.slots > at, float("-inf"))
        mask = mask.expand(ids.shape[0], self.cfg.groups, self.cfg.heads // self.cfg.groups, -1)
        for layer in self.layers:
            x = layer(x, at, mask)
        return self.head(self.norm(x)).argmax(-1)


class Engine:
    """Holds fixed input and output buffers; on a GPU the forward pass is captured once and replayed."""

    def __init__(self, model, cfg, device):
        self.model, self.device = model, device
        self.ids = torch.zeros(cfg.rows, dtype=torch.long, device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.graph = None
        if device.type == "cuda":
            self.capture()

    def advance(self):
        self.ids.copy_(self.model(self.ids, self.at))
        self.at.add_(1)

    @torch.inference_mode()
    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.advance()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.advance()

    @torch.inference_mode()
    def begin(self, ids, position):
        self.ids.copy_(ids)
        self.at.fill_(position)

    @torch.inference_mode()
    def token(self):
        if self.graph is not None:
            self.graph.replay()
        else:
            self.advance()
        return self.ids.tolist()


class Conversation:
    def __init__(self, number, rng):
        self.number, self.written, self.stopped = number, [], False
        self.stop = {rng.randrange(10 ** 6) for _ in range(4)}

    def accept(self, token):
        if self.stopped:
            return None
        self.written.append(token)
        if token in self.stop:
            self.stopped = True
        return json.dumps({"id": self.number, "index": len(self.written), "token": token})


class Service:
    def __init__(self, engine, cfg, seed=9):
        self.engine, self.cfg, self.rng = engine, cfg, random.Random(seed)
        self.sent = 0

    def handle(self):
        """Continue one batch of conversations by a fixed number of tokens."""
        cfg = self.cfg
        talks = [Conversation(i, self.rng) for i in range(cfg.rows)]
        first = torch.tensor([self.rng.randrange(cfg.vocab) for _ in talks])
        self.engine.begin(first, self.rng.randrange(cfg.window // 4, cfg.window - cfg.tokens))
        for _ in range(cfg.tokens):
            for talk, token in zip(talks, self.engine.token()):
                event = talk.accept(token)
                if event is not None:
                    self.sent += len(event)
            if all(talk.stopped for talk in talks):
                break


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    cfg = Config(device.type == "cpu")
    torch.set_default_dtype(torch.bfloat16 if device.type == "cuda" else torch.float32)
    with device:
        model = Model(cfg).eval().requires_grad_(False)
    torch.set_default_dtype(torch.float32)
    service = Service(Engine(model, cfg, device), cfg)
    run_loop(args, device, service.handle)
    print(f"bytes sent {service.sent}")


if __name__ == "__main__":
    main()
