"""Low-batch chat decoding with a captured graph: large layers, full sliding window, token by token streaming."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

PROGRAM = "z09"


@dataclass
class ChatConfig:
    vocab: int = 32000
    dim: int = 8192
    ffn: int = 28672
    heads: int = 64
    kv_heads: int = 8
    layers: int = 16
    window: int = 4096
    batch: int = 8
    eos: int = 2

    @property
    def head_dim(self):
        return self.dim // self.heads

    @classmethod
    def for_device(cls, device):
        if device == "cpu":
            return cls(vocab=64, dim=64, ffn=128, heads=4, kv_heads=2, layers=2, window=16, batch=2)
        return cls()


class DecodeBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        kv = cfg.kv_heads * cfg.head_dim
        self.norm1 = nn.RMSNorm(cfg.dim)
        self.qkv = nn.Linear(cfg.dim, cfg.dim + 2 * kv, bias=False)
        self.o = nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.norm2 = nn.RMSNorm(cfg.dim)
        self.gate_up = nn.Linear(cfg.dim, 2 * cfg.ffn, bias=False)
        self.down = nn.Linear(cfg.ffn, cfg.dim, bias=False)
        shape = (cfg.batch, cfg.window, cfg.kv_heads, cfg.head_dim)
        self.register_buffer("k_cache", torch.randn(shape) * 0.5, persistent=False)
        self.register_buffer("v_cache", torch.randn(shape) * 0.5, persistent=False)

    def forward(self, x, phase, slot):
        c = self.cfg
        b = x.shape[0]
        rows = self.qkv(self.norm1(x)).view(b, c.heads + 2 * c.kv_heads, c.head_dim)
        qk = rows[:, : c.heads + c.kv_heads].float().unflatten(-1, (-1, 2))
        qk = torch.view_as_real(torch.view_as_complex(qk) * phase).flatten(-2).to(x.dtype)
        q, k = qk.split([c.heads, c.kv_heads], dim=1)
        self.k_cache.index_copy_(1, slot, k.unsqueeze(1))
        self.v_cache.index_copy_(1, slot, rows[:, c.heads + c.kv_heads:].unsqueeze(1))
        y = F.scaled_dot_product_attention(q.unsqueeze(2), self.k_cache.transpose(1, 2), self.v_cache.transpose(1, 2), enable_gqa=True)
        x = x + self.o(y.reshape(b, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class ChatModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.embed = nn.Embedding(cfg.vocab, cfg.dim)
        self.blocks = nn.ModuleList(DecodeBlock(cfg) for _ in range(cfg.layers))
        self.norm = nn.RMSNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, cfg.vocab, bias=False)

    def forward(self, tok, phase, slot):
        x = self.embed(tok)
        for blk in self.blocks:
            x = blk(x, phase, slot)
        return self.head(self.norm(x))


class GraphDecoder:
    """Fixed buffers in, fixed buffers out; positions advance on the device inside the graph."""

    def __init__(self, cfg, device):
        self.cfg, self.dev = cfg, device
        torch.set_default_dtype(torch.bfloat16)
        with device:
            self.model = ChatModel(cfg).eval().requires_grad_(False)
        torch.set_default_dtype(torch.float32)
        self.tok = torch.full((cfg.batch,), 5, dtype=torch.long, device=device)
        self.pos = torch.full((1,), cfg.window, dtype=torch.long, device=device)
        self.inv = 1.0 / (500000 ** (torch.arange(0, cfg.head_dim, 2, device=device).float() / cfg.head_dim))
        self.graph = None
        self.backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]

    @torch.inference_mode()
    def forward_once(self):
        ang = self.pos.float() * self.inv
        phase = torch.polar(torch.ones_like(ang), ang)
        with sdpa_kernel(self.backends):
            logits = self.model(self.tok, phase, self.pos % self.cfg.window)
        self.tok.copy_(logits.argmax(-1))
        self.pos.add_(1)

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.forward_once()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.forward_once()

    def advance(self):
        if self.graph is None:
            self.forward_once()
        else:
            self.graph.replay()
        return self.tok


class Conversation:
    def __init__(self):
        self.tokens = []
        self.turns = 0

    def push(self, token, eos):
        self.tokens.append(token)
        if token == eos or len(self.tokens) >= 512:
            self.turns += 1
            self.tokens.clear()


def parse_args(variants):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def drive(args, step, steps, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps, it = [], warmup
    start = last = time.perf_counter()
    for _ in range(steps):
        step(it)
        it += 1
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": PROGRAM, "variant": args.variant, "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 3),
        "step_ms_median": round(1e3 * statistics.median(laps), 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if cuda:
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for k in range(6):
                step(it)
                it += 1
                if cuda and k == 5:
                    sync()
                prof.step()


class StreamServer:
    def __init__(self, cfg, decoder):
        self.cfg, self.decoder = cfg, decoder
        self.rooms = [Conversation() for _ in range(cfg.batch)]

    def step(self, i):
        # the clients see every token as soon as it exists
        for room, token in zip(self.rooms, self.decoder.advance().tolist()):
            room.push(token, self.cfg.eos)


def main():
    args = parse_args(["healthy"])
    torch.manual_seed(0)
    cfg = ChatConfig.for_device(args.device)
    decoder = GraphDecoder(cfg, torch.device(args.device))
    if args.device == "cuda":
        decoder.capture()
    server = StreamServer(cfg, decoder)
    drive(args, server.step, args.steps or (1100 if args.device == "cuda" else 6), warmup=10)


if __name__ == "__main__":
    main()
