"""Denoising pre-training of a T5-style encoder with bucketed relative positions."""
import argparse
import json
import statistics
import time
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ge01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 400
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


class RelativePosition(nn.Module):
    def __init__(self, heads, buckets=32, max_distance=128):
        super().__init__()
        self.buckets, self.max_distance = buckets, max_distance
        self.table = nn.Embedding(buckets, heads)

    def bucket(self, relative):
        half = self.buckets // 2
        base = (relative > 0).long() * half
        distance = relative.abs()
        exact = half // 2
        scaled = exact + (torch.log(distance.float() / exact + 1e-6)
                          / math.log(self.max_distance / exact) * (half - exact)).long()
        scaled = torch.minimum(scaled, torch.full_like(scaled, half - 1))
        return base + torch.where(distance < exact, distance, scaled)

    def forward(self, q_len, k_len):
        device = self.table.weight.device
        context = torch.arange(q_len, device=device)[:, None]
        memory = torch.arange(k_len, device=device)[None, :]
        values = self.table(self.bucket(memory - context))
        return values.permute(2, 0, 1).unsqueeze(0)


class SelfAttention(nn.Module):
    def __init__(self, dim, heads, position):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.position = position

    def forward(self, x, position_bias=None):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        if position_bias is None:
            position_bias = self.position(n, n)
        scores = torch.matmul(q, k.transpose(-1, -2))
        scores = scores + position_bias.to(scores.dtype)
        weights = F.softmax(scores, dim=-1).to(v.dtype)
        y = torch.matmul(weights, v).transpose(1, 2).reshape(b, n, d)
        return self.out(y), position_bias


class GatedFeedForward(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.gate = nn.Linear(dim, inner, bias=False)
        self.up = nn.Linear(dim, inner, bias=False)
        self.down = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        return self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))


class Block(nn.Module):
    def __init__(self, dim, heads, inner, position):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attention = SelfAttention(dim, heads, position)
        self.feed_forward = GatedFeedForward(dim, inner)

    def forward(self, x, position_bias):
        y, position_bias = self.attention(self.norm1(x), position_bias)
        x = x + y
        return x + self.feed_forward(self.norm2(x)), position_bias


class Encoder(nn.Module):
    def __init__(self, cfg, carry_bias):
        super().__init__()
        self.carry_bias = carry_bias
        self.embed = nn.Embedding(cfg["vocab"], cfg["dim"])
        position = RelativePosition(cfg["heads"])
        self.blocks = nn.ModuleList(Block(cfg["dim"], cfg["heads"], cfg["inner"], position)
                                    for _ in range(cfg["layers"]))
        self.norm = nn.RMSNorm(cfg["dim"])
        self.head = nn.Linear(cfg["dim"], cfg["vocab"], bias=False)

    def forward(self, tokens):
        hidden, position_bias = self.embed(tokens), None
        for block in self.blocks:
            hidden, bias = block(hidden, position_bias)
            if self.carry_bias:
                position_bias = bias
        return self.norm(hidden)


class SpanNoise:
    """Replaces about 15 % of the tokens by a sentinel and keeps the originals as labels."""

    def __init__(self, cfg, device):
        self.cfg, self.device = cfg, device
        self.generator = torch.Generator(device=device).manual_seed(7)

    def batch(self):
        shape = (self.cfg["batch"], self.cfg["length"])
        tokens = torch.randint(4, self.cfg["vocab"], shape, device=self.device, generator=self.generator)
        starts = torch.rand(shape, device=self.device, generator=self.generator) < 0.05
        noise = F.max_pool1d(starts.float().unsqueeze(1), 3, stride=1, padding=1).squeeze(1) > 0
        return tokens.masked_fill(noise, 3), tokens.masked_fill(~noise, -100)


class Trainer:
    def __init__(self, cfg, device, variant):
        self.cfg, self.device = cfg, device
        self.model = Encoder(cfg, carry_bias=variant == "fixed").to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.data = SpanNoise(cfg, device)
        self.running = torch.zeros((), device=device)

    def step(self):
        inputs, labels = self.data.batch()
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            hidden = self.model(inputs)
            logits = self.model.head(hidden)
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.running.lerp_(loss.detach(), 0.02)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        cfg = dict(vocab=16000, dim=768, heads=12, inner=2048, layers=12, batch=4, length=768)
    else:
        cfg = dict(vocab=500, dim=64, heads=4, inner=128, layers=2, batch=2, length=96)
    trainer = Trainer(cfg, device, args.variant)
    run_loop(args, device, trainer.step)


if __name__ == "__main__":
    main()
