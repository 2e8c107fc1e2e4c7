"""Language-model pretraining that can return to a recent good state when the loss jumps."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ga11"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 650
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


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, n, w))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, vocab, width, heads, layers, length):
        super().__init__()
        self.token = nn.Embedding(vocab, width)
        self.place = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.place[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class SafePoint:
    """The last good parameters and optimizer moments, kept in host memory."""

    def __init__(self, model, optimizer, variant):
        self.model, self.optimizer, self.variant = model, optimizer, variant
        self.saved, self.step = {}, -1

    def tensors(self):
        for name, p in self.model.named_parameters():
            yield name, p
            for key, value in self.optimizer.state.get(p, {}).items():
                if torch.is_tensor(value):
                    yield f"{name}.{key}", value

    @torch.no_grad()
    def store(self, step):
        if self.variant == "fixed":
            for name, t in self.tensors():
                if name not in self.saved:
                    self.saved[name] = torch.empty_like(t, device="cpu", pin_memory=t.is_cuda)
                self.saved[name].copy_(t, non_blocking=True)
        else:
            self.saved = {name: t.detach().to("cpu", copy=True) for name, t in self.tensors()}
        self.step = step

    @torch.no_grad()
    def restore(self):
        for name, t in self.tensors():
            if name in self.saved:
                t.copy_(self.saved[name])


class SpikeGuard:
    """Compares the recent loss with its running mean and decides what to do."""

    def __init__(self, point, every=8, factor=2.5):
        self.point, self.every, self.factor = point, every, factor
        self.mean, self.returns = None, 0

    def observe(self, step, loss):
        if step % self.every:
            return
        value = loss.item()
        if self.mean is not None and (not math.isfinite(value) or value > self.factor * self.mean):
            self.point.restore()
            self.returns += 1
            return
        self.mean = value if self.mean is None else 0.9 * self.mean + 0.1 * value
        self.point.store(step)


class Corpus:
    def __init__(self, vocab, length, batch, device):
        base = torch.randint(0, vocab, (512, length + 1), device=device)
        repeat = base.roll(7, dims=1)
        self.rows = torch.where(torch.rand(base.shape, device=device) < 0.5, base, repeat)
        self.batch = batch

    def draw(self):
        pick = torch.randint(0, len(self.rows), (self.batch,), device=self.rows.device)
        rows = self.rows[pick]
        return rows[:, :-1], rows[:, 1:]


def learning_rate(step, peak=3e-4, warm=100, horizon=5000):
    if step < warm:
        return peak * (step + 1) / warm
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / horizon)))


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    vocab, width, heads, layers, length, batch = (24576, 768, 12, 10, 1024, 8) if on_gpu else (256, 64, 4, 2, 32, 2)
    with device:
        model = LanguageModel(vocab, width, heads, layers, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=on_gpu)
    guard = SpikeGuard(SafePoint(model, optimizer, args.variant))
    corpus = Corpus(vocab, length, batch, device)
    count = 0

    def step():
        nonlocal count
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(count)
        ids, target = corpus.draw()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(ids)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        guard.observe(count, loss.detach())
        count += 1

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
