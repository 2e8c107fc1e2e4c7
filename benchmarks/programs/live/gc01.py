"""Fine-tunes a 24-block vision transformer with layer-wise learning-rate decay."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gc01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 380
DEFAULT_SECONDS = 50.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=DEFAULT_SECONDS)
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
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(q, k, v)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, dim, heads, init=1e-5):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.gamma1 = nn.Parameter(torch.full((dim,), init))
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, dim * 4)
        self.fc2 = nn.Linear(dim * 4, dim)
        self.gamma2 = nn.Parameter(torch.full((dim,), init))

    def forward(self, x):
        x = x + self.gamma1 * self.attn(self.norm1(x))
        return x + self.gamma2 * self.fc2(F.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    def __init__(self, size, patch, dim, depth, heads, classes):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, dim) * 0.02)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.size(0), -1, -1), x], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def layer_of(name, depth):
    if name.startswith(("patch_embed", "cls_token", "pos_embed")):
        return 0
    if name.startswith("blocks."):
        return int(name.split(".")[1]) + 1
    return depth + 1


def trainable(model, depth, rate, weight_decay):
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        layer = layer_of(name, depth)
        yield {"name": name, "params": [p], "lr_scale": rate ** (depth + 1 - layer),
               "weight_decay": 0.0 if p.ndim == 1 or name.endswith("_token") else weight_decay}


def merged(entries):
    table = {}
    for e in entries:
        key = (e["lr_scale"], e["weight_decay"])
        if key in table:
            table[key]["params"].extend(e["params"])
        else:
            table[key] = dict(e)
    return list(table.values())


class Schedule:
    def __init__(self, optimizer, base_lr, warmup, total):
        self.optimizer, self.base_lr, self.warmup, self.total = optimizer, base_lr, warmup, total
        self.at = 0

    def step(self):
        self.at += 1
        if self.at < self.warmup:
            lr = self.base_lr * self.at / self.warmup
        else:
            t = min(1.0, (self.at - self.warmup) / max(1, self.total - self.warmup))
            lr = self.base_lr * 0.5 * (1 + math.cos(math.pi * t))
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["lr_scale"]


class Mixup:
    def __init__(self, alpha, classes):
        self.beta = torch.distributions.Beta(alpha, alpha)
        self.classes = classes

    def __call__(self, x, y):
        lam = float(self.beta.sample())
        target = F.one_hot(y, self.classes).float().mul_(0.9).add_(0.1 / self.classes)
        return x.mul(lam).add_(x.flip(0), alpha=1 - lam), target * lam + target.flip(0) * (1 - lam)


class FineTuner:
    def __init__(self, model, optimizer, schedule, mixup, device):
        self.model, self.optimizer, self.schedule, self.mixup = model, optimizer, schedule, mixup
        self.device = device
        self.running = torch.zeros((), device=device)
        self.seen = 0
        self.history = []

    def __call__(self, images, labels):
        x = images.to(self.device, non_blocking=True).float().div_(127.5).sub_(1.0)
        x, target = self.mixup(x, labels.to(self.device, non_blocking=True))
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(x), target)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.running += loss.detach()
        self.seen += 1
        if self.seen % 20 == 0:
            self.history.append(self.running.item() / 20)
            self.running.zero_()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(11)
    big = device.type == "cuda"
    size, dim, depth, batch = (224, 768, 24, 64) if big else (64, 64, 3, 4)
    model = VisionTransformer(size, 16, dim, depth, dim // 64, 1000).to(device)
    entries = trainable(model, depth, 0.75, 0.05)
    groups = list(entries) if args.variant == "slow" else merged(entries)
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.999))
    schedule = Schedule(optimizer, 1e-3, 50, args.steps + WARMUP)
    tuner = FineTuner(model, optimizer, schedule, Mixup(0.8, 1000), device)
    pool = []
    for _ in range(6):
        images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8)
        labels = torch.randint(0, 1000, (batch,))
        pool.append((images.pin_memory(), labels.pin_memory()) if big else (images, labels))
    turn = [0]

    def step():
        turn[0] += 1
        tuner(*pool[turn[0] % len(pool)])

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
