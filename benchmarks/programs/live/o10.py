"""Single-user chat decoding of a wide dense model: one captured graph a token, the token is read back for the stop test."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "o10"
CHOICES = ["healthy"]
DEFAULT_STEPS = 1500
WARMUP = 10


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


class Block(nn.Module):
    def __init__(self, dim, heads, kv_heads, ffn, max_len, dtype):
        super().__init__()
        self.h, self.kv, self.hd = heads, kv_heads, dim // heads
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, (heads + 2 * kv_heads) * self.hd, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.gate, self.up = nn.Linear(dim, ffn, bias=False), nn.Linear(dim, ffn, bias=False)
        self.down = nn.Linear(ffn, dim, bias=False)
        self.register_buffer("k", torch.zeros(1, kv_heads, max_len, self.hd, dtype=dtype))
        self.register_buffer("v", torch.zeros(1, kv_heads, max_len, self.hd, dtype=dtype))

    def forward(self, x, pos, mask):
        qkv = self.qkv(self.norm1(x)).view(1, 1, -1, self.hd).transpose(1, 2)
        q, k, v = qkv.split([self.h, self.kv, self.kv], dim=1)
        self.k.index_copy_(2, pos, k)
        self.v.index_copy_(2, pos, v)
        q = q.view(1, self.kv, self.h // self.kv, self.hd)
        y = F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask)
        x = x + self.out(y.reshape(1, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)).mul_(self.up(y)))


class ChatModel(nn.Module):
    def __init__(self, vocab, dim, heads, kv_heads, ffn, layers, max_len, dtype):
        super().__init__()
        self.tok, self.place = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList([Block(dim, heads, kv_heads, ffn, max_len, dtype) for _ in range(layers)])
        self.norm, self.head = nn.RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, token, pos, mask):
        x = self.tok(token) + self.place(pos)
        for block in self.blocks:
            x = block(x, pos, mask)
        return self.head(self.norm(x)).argmax(-1)


class Chat:
    def __init__(self, model, max_len, device, dtype):
        self.model, self.max_len, self.device = model, max_len, device
        self.token = torch.zeros(1, dtype=torch.long, device=device)
        self.pos = torch.zeros(1, dtype=torch.long, device=device)
        self.mask = torch.full((1, 1, 1, max_len), float("-inf"), device=device, dtype=dtype)
        self.zero = torch.zeros(1, device=device, dtype=dtype)
        self.graph, self.reply, self.length = None, [], 0
        if device.type == "cuda":
            self.capture()
        self.restart()

    @torch.inference_mode()
    def advance(self):
        self.mask.view(-1).index_copy_(0, self.pos, self.zero)
        self.token.copy_(self.model(self.token, self.pos, self.mask))
        self.pos.add_(1)

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

    def restart(self):
        self.pos.zero_()
        self.mask.fill_(float("-inf"))
        self.reply, self.length = [], 0

    def step(self):
        if self.graph is not None:
            self.graph.replay()
        else:
            self.advance()
        token = int(self.token)
        self.reply.append(token)
        self.length += 1
        if token < 0 or self.length == self.max_len:
            self.restart()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        dtype, vocab, dim, heads, kv_heads, ffn, layers, max_len = torch.bfloat16, 32000, 8192, 64, 8, 28672, 12, 1024
    else:
        dtype, vocab, dim, heads, kv_heads, ffn, layers, max_len = torch.float32, 64, 32, 4, 2, 64, 2, 32
    torch.set_default_dtype(dtype)
    with torch.device(device):
        model = ChatModel(vocab, dim, heads, kv_heads, ffn, layers, max_len, dtype).eval().requires_grad_(False)
    torch.set_default_dtype(torch.float32)
    chat = Chat(model, max_len, device, dtype)
    run_loop(args, device, chat.step)


if __name__ == "__main__":
    main()
