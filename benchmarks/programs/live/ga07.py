"""Batched text generation service: a compact decoder, per-request sampling settings, static cache."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ga07"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 700
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


@dataclass
class Dimensions:
    vocab: int = 151936
    width: int = 1024
    heads: int = 16
    layers: int = 8
    ff: int = 3072
    window: int = 512
    slots: int = 128


class Layer(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.heads, self.head_dim = dims.heads, dims.width // dims.heads
        self.norm1 = nn.RMSNorm(dims.width)
        self.qkv = nn.Linear(dims.width, 3 * dims.width, bias=False)
        self.out = nn.Linear(dims.width, dims.width, bias=False)
        self.norm2 = nn.RMSNorm(dims.width)
        self.up = nn.Linear(dims.width, dims.ff, bias=False)
        self.down = nn.Linear(dims.ff, dims.width, bias=False)
        shape = (dims.slots, dims.heads, dims.window, self.head_dim)
        self.register_buffer("keys", torch.zeros(shape), persistent=False)
        self.register_buffer("values", torch.zeros(shape), persistent=False)

    def forward(self, x, cursor):
        b, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, 3, self.heads, 1, self.head_dim).unbind(1)
        self.keys[:, :, cursor:cursor + 1] = k
        self.values[:, :, cursor:cursor + 1] = v
        y = F.scaled_dot_product_attention(q, self.keys[:, :, :cursor + 1], self.values[:, :, :cursor + 1])
        x = x + self.out(y.reshape(b, w))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.embed = nn.Embedding(dims.vocab, dims.width)
        self.place = nn.Embedding(dims.window, dims.width)
        self.layers = nn.ModuleList(Layer(dims) for _ in range(dims.layers))
        self.norm = nn.RMSNorm(dims.width)
        self.head = nn.Linear(dims.width, dims.vocab, bias=False)

    def forward(self, tokens, cursor):
        x = self.embed(tokens) + self.place.weight[cursor]
        for layer in self.layers:
            x = layer(x, cursor)
        return self.head(self.norm(x))


class Settings:
    """Sampling settings of the requests that currently hold a slot."""

    def __init__(self, slots, device, ceiling=64):
        generator = torch.Generator().manual_seed(5)
        self.ceiling = ceiling
        self.temperature = (0.6 + 0.6 * torch.rand(slots, 1, generator=generator)).to(device)
        self.top_k = torch.randint(8, ceiling + 1, (slots, 1), generator=generator).to(device)
        self.top_p = (0.85 + 0.14 * torch.rand(slots, 1, generator=generator)).to(device)


class Sampler:
    def __init__(self, settings, variant):
        self.settings, self.variant = settings, variant

    def rank(self, scores):
        if self.variant == "fixed":
            return scores.topk(self.settings.ceiling, dim=-1)
        return scores.sort(dim=-1, descending=True)

    def __call__(self, logits):
        s = self.settings
        ranked, token_ids = self.rank(logits.float() / s.temperature)
        place = torch.arange(ranked.shape[-1], device=ranked.device)
        ranked = ranked.masked_fill(place >= s.top_k, float("-inf"))
        mass = ranked.softmax(dim=-1)
        before = mass.cumsum(dim=-1) - mass
        mass = mass.masked_fill(before >= s.top_p, 0.0)
        gumbel = torch.empty_like(mass).exponential_()
        choice = (mass / gumbel).argmax(dim=-1, keepdim=True)
        return token_ids.gather(-1, choice).squeeze(-1)


class Engine:
    def __init__(self, model, sampler, dims, device):
        self.model, self.sampler, self.dims = model, sampler, dims
        self.tokens = torch.randint(0, dims.vocab, (dims.slots,), device=device)
        self.cursor = 0
        self.delivered = 0

    @torch.inference_mode()
    def burst(self, count):
        """Generates `count` tokens for every slot and delivers them together."""
        made = []
        for _ in range(count):
            logits = self.model(self.tokens, self.cursor)
            self.tokens = self.sampler(logits)
            made.append(self.tokens)
            self.cursor = (self.cursor + 1) % self.dims.window
        block = torch.stack(made, dim=1).cpu()
        self.delivered += block.numel()
        return block


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = torch.device(args.device)
    dims = Dimensions()
    dtype = torch.bfloat16
    if device.type == "cpu":
        dims, dtype = Dimensions(vocab=600, width=64, heads=4, layers=2, ff=128, window=32, slots=4), torch.float32
    torch.set_default_dtype(dtype)
    with device:
        model = Decoder(dims).eval()
    torch.set_default_dtype(torch.float32)
    engine = Engine(model, Sampler(Settings(dims.slots, device), args.variant), dims, device)
    run_loop(args, device, lambda: engine.burst(8))


if __name__ == "__main__":
    main()
