"""Masked prediction on audio frames with a transformer that knows only relative positions."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gl10"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 450
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=50.0)
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


def distance_buckets(length, buckets=32, farthest=128):
    """Fine buckets for near frames, logarithmic ones farther away, one for all the rest."""
    place = torch.arange(length)
    offset = place[None, :] - place[:, None]
    half = buckets // 2
    exact = half // 2
    size = offset.abs()
    ratio = torch.log(size.clamp_min(1).float() / exact) / math.log(farthest / exact)
    coarse = (exact + (ratio * (half - exact)).long()).clamp_max(half - 1)
    return torch.where(size < exact, size, coarse) + half * (offset > 0)


class RelativeBias(nn.Module):
    def __init__(self, heads, length, lookup, buckets=32):
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(buckets, heads))
        self.register_buffer("index", distance_buckets(length, buckets), persistent=False)
        self.lookup = lookup

    def forward(self, batch, dtype):
        if self.lookup:
            bias = F.embedding(self.index, self.table)
        else:
            bias = self.table[self.index]
        return bias.permute(2, 0, 1).to(dtype).contiguous().unsqueeze(0).expand(batch, -1, -1, -1)


class Layer(nn.Module):
    def __init__(self, width, heads, length, lookup):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = RelativeBias(heads, length, lookup)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias(b, q.dtype))
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class FrameModel(nn.Module):
    def __init__(self, mels, stack, width, depth, heads, length, codes, lookup):
        super().__init__()
        self.stack = stack
        self.inp = nn.Linear(mels * stack, width)
        self.hidden = nn.Parameter(0.02 * torch.randn(width))
        self.layers = nn.ModuleList([Layer(width, heads, length, lookup) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, codes)

    def forward(self, mel, mask):
        b, t, f = mel.shape
        x = self.inp(mel.view(b, t // self.stack, f * self.stack))
        x = torch.where(mask.unsqueeze(-1), self.hidden.to(x.dtype), x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Quantizer:
    """Frozen random projection and codebook that gives the frames to predict their labels."""

    def __init__(self, inputs, size, codes, device):
        gen = torch.Generator(device=device).manual_seed(12)
        self.project = torch.randn(inputs, size, generator=gen, device=device) / math.sqrt(inputs)
        self.book = F.normalize(torch.randn(codes, size, generator=gen, device=device), dim=-1)

    @torch.no_grad()
    def __call__(self, frames):
        return (F.normalize(frames @ self.project, dim=-1) @ self.book.t()).argmax(dim=-1)


class Clips:
    def __init__(self, clips, frames, mels, device):
        gen = torch.Generator(device=device).manual_seed(13)
        self.mel = torch.randn(clips, frames, mels, generator=gen, device=device)
        self.device = device

    def batch(self, size):
        rows = torch.randint(0, self.mel.shape[0], (size,), device=self.device)
        mel = self.mel.index_select(0, rows)
        gain = 0.8 + 0.4 * torch.rand(size, 1, 1, device=self.device)
        return mel * gain


def span_mask(batch, length, share, span, device):
    starts = torch.rand(batch, 1, length, device=device) < share / span
    grown = F.max_pool1d(F.pad(starts.float(), (span - 1, 0)), span, stride=1)
    return grown.squeeze(1) > 0


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    batch, length, clips = 48, 384, 2048
    shape = dict(mels=80, stack=4, width=768, depth=6, heads=12, codes=2048)
    if device.type == "cpu":
        batch, length, clips = 2, 64, 8
        shape = dict(mels=16, stack=2, width=32, depth=2, heads=4, codes=32)
    model = FrameModel(length=length, lookup=args.variant == "fixed", **shape).to(device)
    inputs = shape["mels"] * shape["stack"]
    quantizer = Quantizer(inputs, 16, shape["codes"], device)
    data = Clips(clips, length * shape["stack"], shape["mels"], device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device.type == "cuda")
    running = torch.zeros((), device=device)

    def step():
        mel = data.batch(batch)
        labels = quantizer(mel.view(batch, length, inputs))
        mask = span_mask(batch, length, 0.4, 8, device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(mel, mask)
        each = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none")
        weight = mask.flatten().float()
        loss = (each * weight).sum() / weight.sum().clamp_min(1)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        running.lerp_(loss.detach(), 0.05)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
