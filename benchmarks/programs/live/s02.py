"""Semantic segmentation training: residual backbone, feature pyramid with bilinear top-down path, channels-last bf16."""
import argparse
import json
import os
import random
import statistics
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def set_reproducible(seed, strict):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False
    if strict:
        torch.use_deterministic_algorithms(True, warn_only=True)


def conv_bn(cin, cout, k, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, k, stride, k // 2, bias=False), nn.BatchNorm2d(cout))


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a, self.b = conv_bn(cin, cout, 3, stride), conv_bn(cout, cout, 3)
        self.skip = conv_bn(cin, cout, 1, stride) if stride != 1 or cin != cout else nn.Identity()

    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x), inplace=True)) + self.skip(x), inplace=True)


class Backbone(nn.Module):
    def __init__(self, widths, depths):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, widths[0], 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        stages, cin = [], widths[0]
        for i, (w, d) in enumerate(zip(widths, depths)):
            blocks = []
            for j in range(d):
                blocks.append(Residual(cin, w, 2 if i and not j else 1))
                cin = w
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.ModuleList(stages)

    def forward(self, x):
        x = self.stem(x)
        out = []
        for stage in self.stages:
            x = stage(x)
            out.append(x)
        return out


class PyramidHead(nn.Module):
    def __init__(self, widths, dim, classes):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(w, dim, 1) for w in widths)
        self.smooth = nn.ModuleList(conv_bn(dim, dim // 2, 3) for _ in widths)
        self.classify = nn.Conv2d(dim // 2, classes, 1)

    def resize(self, x, size):
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)

    def forward(self, feats, size):
        maps = [conv(f) for conv, f in zip(self.lateral, feats)]
        for i in range(len(maps) - 1, 0, -1):
            maps[i - 1] = maps[i - 1] + self.resize(maps[i], maps[i - 1].shape[-2:])
        maps = [F.relu(conv(m), inplace=True) for conv, m in zip(self.smooth, maps)]
        merged = maps[0]
        for m in maps[1:]:
            merged = merged + self.resize(m, merged.shape[-2:])
        return self.resize(self.classify(merged), size)


class Segmenter(nn.Module):
    def __init__(self, widths, depths, dim, classes):
        super().__init__()
        self.backbone = Backbone(widths, depths)
        self.head = PyramidHead(widths, dim, classes)

    def forward(self, x):
        return self.head(self.backbone(x), x.shape[-2:])


def build(args, device):
    tiny = device.type == "cpu"
    # -- variant
    strict = args.variant == "slow"
    # --
    set_reproducible(1234, strict)
    size, batch, classes = (64, 2, 5) if tiny else (512, 16, 32)
    if tiny:
        model = Segmenter([8, 8, 16, 16], [1, 1, 1, 1], 16, classes)
    else:
        model = Segmenter([64, 128, 256, 512], [3, 4, 6, 3], 256, classes)
    model = model.to(device, memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4, fused=True)
    pool = []
    for _ in range(4):
        image = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8)
        label = torch.randint(0, classes, (batch, size, size), dtype=torch.uint8)
        pool.append((image, label) if tiny else (image.pin_memory(), label.pin_memory()))
    mean = torch.tensor([123.7, 116.3, 103.5], device=device).view(1, 3, 1, 1)
    state = {"n": 0}

    def step():
        image, label = (t.to(device, non_blocking=True) for t in pool[state["n"] % len(pool)])
        state["n"] += 1
        x = ((image.float() - mean) / 58.0).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(x)
            loss = F.cross_entropy(logits, label.long())
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss

    return step


def measure(program, args, step, device):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for _ in range(args.warmup):
        step()
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step()
        marks.append(time.perf_counter())
        if args.max_seconds and marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    end = time.perf_counter()
    gaps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": program, "variant": args.variant, "steps": len(gaps),
        "step_ms_mean": round((end - marks[0]) * 1e3 / len(gaps), 3),
        "step_ms_median": round(statistics.median(gaps) * 1e3, 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for _ in range(6):
                step()
                prof.step()


def parse_args(variants, steps, tiny_steps=4, warmup=5):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    args = p.parse_args()
    if args.steps is None:
        args.steps = steps[args.variant] if args.device == "cuda" else tiny_steps
    args.warmup = warmup if args.device == "cuda" else 1
    return args


if __name__ == "__main__":
    args = parse_args(["slow", "fixed"], {"slow": 90, "fixed": 170})
    device = torch.device(args.device)
    measure("s02", args, build(args, device), device)
