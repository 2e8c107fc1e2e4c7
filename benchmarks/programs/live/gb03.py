"""Fine-tuning a vision transformer with layer-wise learning-rate decay and a cosine schedule."""
import argparse
import json
import math
import re
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gb03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 500
WARMUP = 5


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


class LayerScale(nn.Module):
    def __init__(self, dim, init=1e-2):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), init))

    def forward(self, x):
        return x * self.gamma


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.ls1, self.ls2 = LayerScale(dim), LayerScale(dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + self.ls1(self.proj(y))
        return x + self.ls2(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class VisionTransformer(nn.Module):
    def __init__(self, image, patch, dim, depth, heads, classes):
        super().__init__()
        tokens = (image // patch) ** 2
        self.patch_embed = nn.Conv2d(3, dim, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, tokens + 1, dim) * 0.02)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, images):
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def depth_of(name, depth):
    if name.startswith(("patch_embed", "cls_token", "pos_embed")):
        return 0
    found = re.match(r"layers\.(\d+)\.", name)
    return int(found.group(1)) + 1 if found else depth + 1


def needs_decay(name, param):
    return param.ndim > 1 and not name.startswith(("cls_token", "pos_embed"))


def parameter_plan(model, depth, base_lr, weight_decay, layer_decay, merge):
    """The optimizer's groups; every parameter gets base_lr * layer_decay ** (distance from the head)."""
    plan = {}
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        scale = layer_decay ** (depth + 1 - depth_of(name, depth))
        decay = weight_decay if needs_decay(name, param) else 0.0
        key = (scale, decay) if merge else name
        group = plan.setdefault(key, {"params": [], "lr": base_lr * scale, "lr_scale": scale,
                                      "weight_decay": decay})
        group["params"].append(param)
    return list(plan.values())


class CosineSchedule:
    def __init__(self, optimizer, base_lr, warmup, total):
        self.optimizer, self.base_lr, self.warmup, self.total = optimizer, base_lr, warmup, total
        self.now = 0

    def step(self):
        self.now += 1
        if self.now < self.warmup:
            factor = self.now / self.warmup
        else:
            done = min(1.0, (self.now - self.warmup) / max(1, self.total - self.warmup))
            factor = 0.5 * (1 + math.cos(math.pi * done))
        for group in self.optimizer.param_groups:
            group["lr"] = self.base_lr * factor * group["lr_scale"]


class FineTuner:
    def __init__(self, args, device):
        big = device.type == "cuda"
        depth, dim, image = (24, 512, 224) if big else (3, 64, 32)
        self.device, self.batch, self.image = device, (48 if big else 4), image
        self.model = VisionTransformer(image, 16, dim, depth, dim // 64, 100).to(device)
        groups = parameter_plan(self.model, depth, 5e-4, 0.05, 0.75, merge=args.variant == "fixed")
        self.optimizer = torch.optim.AdamW(groups, fused=big)
        self.schedule = CosineSchedule(self.optimizer, 5e-4, 50, args.steps + 50)
        pool = 8 if big else 2
        self.images = torch.randn(pool, self.batch, 3, image, image, device=device)
        self.labels = torch.randint(0, 100, (pool, self.batch), device=device)
        self.running = torch.zeros((), device=device)
        self.seen = 0

    def forward_loss(self):
        slot = self.seen % self.images.shape[0]
        images = self.images[slot]
        if self.seen % 2:
            images = images.flip(-1)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(images)
        return F.cross_entropy(logits.float(), self.labels[slot], label_smoothing=0.1)

    def step(self):
        loss = self.forward_loss()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.running.lerp_(loss.detach(), 0.05)
        self.seen += 1
        if self.seen % 100 == 0:
            print(json.dumps({"iter": self.seen, "loss": round(self.running.item(), 4)}), flush=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, FineTuner(args, device).step)


if __name__ == "__main__":
    main()
