"""Class-conditional image sampling with a diffusion transformer; the blocks are compiled one by one (regional compilation)."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "t06"
STEPS = 180
WARMUP = 4


def gain_by_index(block):
    return (2.0 * (block.index + 1)) ** -0.5


def gain_by_buffer(block):
    return block.gain


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return y.to(x.dtype) * self.weight


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, index, width, heads, branch_gain):
        super().__init__()
        self.index, self.heads, self.branch_gain = index, heads, branch_gain
        self.register_buffer("gain", torch.tensor((2.0 * (index + 1)) ** -0.5))
        self.norm_a, self.norm_b = RMSNorm(width), RMSNorm(width)
        self.norm_q, self.norm_k = RMSNorm(width // heads), RMSNorm(width // heads)
        self.modulation = nn.Linear(width, 6 * width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate, self.up, self.down = (nn.Linear(width, 3 * width), nn.Linear(width, 3 * width), nn.Linear(3 * width, width))

    def forward(self, x, condition, cos, sin):
        b, t, d = x.shape
        gain = self.branch_gain(self)
        shift_a, scale_a, gate_a, shift_b, scale_b, gate_b = self.modulation(F.silu(condition))[:, None].chunk(6, -1)
        y = self.norm_a(x) * (1 + scale_a) + shift_a
        q, k, v = self.qkv(y).view(b, t, 3, self.heads, d // self.heads).unbind(2)
        q, k = rotate(self.norm_q(q), cos, sin), rotate(self.norm_k(k), cos, sin)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        x = x + gain * gate_a * self.out(y.transpose(1, 2).reshape(b, t, d))
        y = self.norm_b(x) * (1 + scale_b) + shift_b
        return x + gain * gate_b * self.down(F.silu(self.gate(y)) * self.up(y))


class Denoiser(nn.Module):
    def __init__(self, width, heads, depth, side, channels, branch_gain):
        super().__init__()
        self.embed = nn.Linear(channels, width)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(1001, width)
        self.blocks = nn.ModuleList(Block(i, width, heads, branch_gain) for i in range(depth))
        self.norm = RMSNorm(width)
        self.final = nn.Linear(width, channels)
        half = width // heads // 2
        angle = torch.arange(side * side)[:, None] * torch.exp(torch.arange(half) * (-9.2 / half))
        self.register_buffer("cos", angle.cos()[None, :, None])
        self.register_buffer("sin", angle.sin()[None, :, None])

    def forward(self, x, t, label):
        angle = t[:, None] * torch.exp(torch.arange(128, device=x.device) * (-9.2 / 128))
        condition = self.time(torch.cat((angle.cos(), angle.sin()), -1).to(x.dtype)) + self.label(label)
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, condition, self.cos, self.sin)
        return self.final(self.norm(x))


def compile_blocks(model, device):
    for block in model.blocks:
        block.compile(backend="inductor" if device.type == "cuda" else "aot_eager")


class Sampler:
    def __init__(self, model, images, tokens, channels, device, dtype, rounds=50):
        self.model, self.rounds, self.at = model, rounds, 0
        self.labels = torch.cat((torch.randint(0, 1000, (images,)), torch.full((images,), 1000))).to(device)
        self.shape, self.device, self.dtype = (images, tokens, channels), device, dtype
        self.times = torch.linspace(1, 0, rounds + 1, device=device)

    @torch.inference_mode()
    def step(self):
        i = self.at % self.rounds
        if i == 0:
            self.x = torch.randn(self.shape, device=self.device, dtype=self.dtype)
        self.at += 1
        t = self.times[i].expand(2 * self.shape[0]) * 1000
        with_label, without = self.model(torch.cat((self.x, self.x)), t, self.labels).chunk(2)
        flow = without + 4.0 * (with_label - without)
        self.x = self.x + flow * (self.times[i + 1] - self.times[i]).to(self.dtype)


VARIANTS = {"slow": gain_by_index, "fixed": gain_by_buffer}


def build(device, branch_gain):
    gpu = device.type == "cuda"
    width, heads, depth, side, images = (1152, 18, 28, 32, 8) if gpu else (32, 2, 10, 4, 2)
    dtype = torch.bfloat16 if gpu else torch.float32
    model = Denoiser(width, heads, depth, side, 16, branch_gain).to(device).eval().requires_grad_(False)
    for name, child in model.named_modules():
        if isinstance(child, (nn.Linear, nn.Embedding, RMSNorm)):
            child.to(dtype)
        elif isinstance(child, Block):
            child.gain = child.gain.to(dtype)
    compile_blocks(model, device)
    return Sampler(model, images, side * side, 16, device, dtype).step


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step, device, steps, limit):
    marks = []
    settle(device)
    begin = time.perf_counter()
    last = begin
    for _ in range(steps):
        step()
        now = time.perf_counter()
        marks.append((now - last) * 1e3)
        last = now
        if limit and now - begin > limit:
            break
    settle(device)
    total = (time.perf_counter() - begin) * 1e3
    return len(marks), total / len(marks), statistics.median(marks)


def record(step, device, path):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
                                record_shapes=True, with_stack=True, with_modules=True,
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--variant", choices=sorted(VARIANTS), default=sorted(VARIANTS)[-1])
    ap.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    ap.add_argument("--steps", type=int, default=STEPS)
    ap.add_argument("--max-seconds", type=float, default=None)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    step = build(device, VARIANTS[args.variant])
    for _ in range(WARMUP):
        step()
    count, mean, median = timed(step, device, args.steps, args.max_seconds)
    print(json.dumps({"program": NAME, "variant": args.variant, "steps": count,
                      "step_ms_mean": round(mean, 3), "step_ms_median": round(median, 3)}), flush=True)
    if args.trace:
        record(step, device, args.trace)


if __name__ == "__main__":
    main()
