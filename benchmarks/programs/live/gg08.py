"""Language-model pretraining with gated mixture-of-experts feed-forward layers."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gg08"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 130
WARMUP = 4
VOCAB = 32768


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


def inner_width(width, multiple):
    """Two thirds of the usual four, since a gated unit has a third matrix."""
    inner = int(8 * width / 3)
    return -(-inner // multiple) * multiple


MULTIPLE = {"slow": 1, "fixed": 128}


class Experts(nn.Module):
    def __init__(self, count, width, inner):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(count, width, inner) * width ** -0.5)
        self.up = nn.Parameter(torch.randn(count, width, inner) * width ** -0.5)
        self.down = nn.Parameter(torch.randn(count, inner, width) * inner ** -0.5)

    def forward(self, x):
        return torch.bmm(F.silu(torch.bmm(x, self.gate)) * torch.bmm(x, self.up), self.down)


class Mixture(nn.Module):
    """Top-2 routing with fixed expert capacity; overflow is dropped."""

    def __init__(self, width, count, inner, slack=1.25):
        super().__init__()
        self.count, self.slack = count, slack
        self.router = nn.Linear(width, count, bias=False)
        self.experts = Experts(count, width, inner)
        self.balance = None

    def assign(self, chosen, capacity):
        flat = chosen.t().reshape(-1)
        member = flat[None, :] == torch.arange(self.count, device=flat.device)[:, None]
        position = member.cumsum(1, dtype=torch.int32).gather(0, flat[None, :])[0] - 1
        slot = flat * capacity + position
        spill = self.count * capacity
        return torch.where(position < capacity, slot, spill)

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        n, width = x.shape
        capacity = int(self.slack * 2 * n / self.count) // 64 * 64
        p = self.router(x).float().softmax(-1)
        weight, chosen = p.topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        load = torch.zeros_like(p[0]).index_add_(0, chosen[:, 0], torch.ones_like(p[:, 0])) / n
        self.balance = self.count * (load * p.mean(0)).sum()
        slot = self.assign(chosen, capacity)
        token = torch.arange(n, device=x.device).repeat(2)
        owner = torch.full((self.count * capacity + 1,), n, device=x.device).scatter_(0, slot, token)[:-1]
        padded = F.pad(x, (0, 0, 0, 1)).to(torch.bfloat16)
        sent = padded.index_select(0, owner).view(self.count, capacity, width)
        back = F.pad(self.experts(sent).flatten(0, 1), (0, 0, 0, 1))
        out = back.index_select(0, slot).view(2, n, width) * weight.t()[..., None].to(back.dtype)
        return out.sum(0).view(shape)


class Block(nn.Module):
    def __init__(self, width, heads, count, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mix = Mixture(width, count, inner)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(h.transpose(1, 2).reshape(n, t, width))
        return x + self.mix(self.norm2(x))


class Model(nn.Module):
    def __init__(self, width, depth, heads, count, inner):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.blocks = nn.ModuleList(Block(width, heads, count, inner) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)), sum(b.mix.balance for b in self.blocks)


class Trainer:
    def __init__(self, args, device):
        self.device = device
        width, depth, heads, self.rows, self.length = (1280, 6, 20, 8, 1024) if device.type == "cuda" else (128, 2, 4, 2, 128)
        self.model = Model(width, depth, heads, 8, inner_width(width, MULTIPLE[args.variant])).to(device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.stream = torch.randint(0, VOCAB, (64, self.rows, self.length + 1), device=device)
        self.index = 0

    def step(self):
        tokens = self.stream[self.index % 64]
        self.index += 1
        with torch.autocast(self.device.type, torch.bfloat16):
            logits, balance = self.model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) + 0.01 * balance
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, Trainer(args, device).step)


if __name__ == "__main__":
    main()
