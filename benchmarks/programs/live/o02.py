"""Batched token-by-token decoding of a grouped-query language model over a preallocated KV cache."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "o02"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 400
WARMUP = 8


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


def spread_heads(x, groups):
    """(batch, kv_heads, time, dim) -> (batch, kv_heads * groups, time, dim)"""
    b, h, t, d = x.shape
    return x[:, :, None].expand(b, h, groups, t, d).reshape(b, h * groups, t, d)


def attention_per_head(q, k, v):
    groups = q.shape[1] // k.shape[1]
    return F.scaled_dot_product_attention(q, spread_heads(k, groups), spread_heads(v, groups))


def attention_grouped(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


ATTENTION = {"slow": attention_per_head, "fixed": attention_grouped}


class Block(nn.Module):
    def __init__(self, cfg, attention):
        super().__init__()
        d, self.h, self.kv, self.hd = cfg["dim"], cfg["heads"], cfg["kv_heads"], cfg["head_dim"]
        self.attention = attention
        self.norm1 = nn.RMSNorm(d)
        self.qkv = nn.Linear(d, (self.h + 2 * self.kv) * self.hd, bias=False)
        self.out = nn.Linear(self.h * self.hd, d, bias=False)
        self.norm2 = nn.RMSNorm(d)
        self.gate_up = nn.Linear(d, 2 * cfg["ffn"], bias=False)
        self.down = nn.Linear(cfg["ffn"], d, bias=False)

    def forward(self, x, cache, pos, rope):
        b = x.shape[0]
        qkv = self.qkv(self.norm1(x)).view(b, self.h + 2 * self.kv, self.hd)
        cos, sin = rope
        qk, v = qkv.split([self.h + self.kv, self.kv], dim=1)
        lo, hi = qk.chunk(2, dim=-1)
        qk = torch.cat([lo * cos - hi * sin, hi * cos + lo * sin], dim=-1)
        q, k = qk.split([self.h, self.kv], dim=1)
        cache[0][:, :, pos] = k
        cache[1][:, :, pos] = v
        y = self.attention(q.unsqueeze(2), cache[0][:, :, : pos + 1], cache[1][:, :, : pos + 1])
        x = x + self.out(y.reshape(b, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, cfg, attention):
        super().__init__()
        self.embed = nn.Embedding(cfg["vocab"], cfg["dim"])
        self.blocks = nn.ModuleList([Block(cfg, attention) for _ in range(cfg["layers"])])
        self.norm = nn.RMSNorm(cfg["dim"])
        self.head = nn.Linear(cfg["dim"], cfg["vocab"], bias=False)

    def forward(self, tokens, caches, pos, rope):
        x = self.embed(tokens)
        for block, cache in zip(self.blocks, caches):
            x = block(x, cache, pos, rope)
        return self.head(self.norm(x))


def rope_table(length, dim, device, dtype):
    freq = 10000.0 ** (-torch.arange(0, dim, 2, device=device).float() / dim)
    angle = torch.arange(length, device=device).float()[:, None] * freq
    return angle.cos().to(dtype), angle.sin().to(dtype)


class Session:
    def __init__(self, model, cfg, device, dtype):
        self.model, self.cfg, self.start = model, cfg, cfg["prompt"]
        self.pos = self.start
        shape = (cfg["batch"], cfg["kv_heads"], cfg["max_len"], cfg["head_dim"])
        self.caches = [(torch.randn(shape, device=device, dtype=dtype), torch.randn(shape, device=device, dtype=dtype))
                       for _ in range(cfg["layers"])]
        self.tokens = torch.randint(cfg["vocab"], (cfg["batch"],), device=device)
        self.rope = rope_table(cfg["max_len"], cfg["head_dim"], device, dtype)

    @torch.inference_mode()
    def decode_one(self):
        rope = self.rope[0][self.pos], self.rope[1][self.pos]
        logits = self.model(self.tokens, self.caches, self.pos, rope)
        self.tokens = logits.argmax(-1)
        self.pos += 1
        if self.pos == self.cfg["max_len"]:
            self.pos = self.start


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        dtype = torch.bfloat16
        cfg = dict(dim=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, layers=16, vocab=32000,
                   batch=32, prompt=4096, max_len=5120)
    else:
        dtype = torch.float32
        cfg = dict(dim=64, heads=4, kv_heads=2, head_dim=16, ffn=128, layers=2, vocab=100, batch=2, prompt=32, max_len=64)
    with torch.device(device):
        model = Decoder(cfg, ATTENTION[args.variant]).to(dtype).eval()
    session = Session(model, cfg, device, dtype)
    run_loop(args, device, session.decode_one)


if __name__ == "__main__":
    main()
