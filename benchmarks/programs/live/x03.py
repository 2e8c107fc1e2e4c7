"""Image classification with a two-branch shuffle network, channels_last and bf16."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def run_steps(name, args, step, device, warmup=5):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps = []
    begin = last = time.perf_counter()
    for i in range(args.steps):
        step(warmup + i)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - begin > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - begin) / len(laps)
    print(json.dumps({"program": name, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(mean * 1e3, 3),
                      "step_ms_median": round(statistics.median(laps) * 1e3, 3)}), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                    schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for i in range(6):
                step(warmup + len(laps) + i)
                prof.step()


def parse_args(variants, steps):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=steps)
    ap.add_argument("--max-seconds", type=float, default=0.0)
    ap.add_argument("--trace", default=None)
    return ap.parse_args()


def shuffle_planes(x, groups=2):
    b, c, h, w = x.shape
    x = x.view(b, groups, c // groups, h, w)
    x = x.transpose(1, 2).contiguous()
    return x.view(b, c, h, w)


def shuffle_pixels(x, groups=2):
    b, c, h, w = x.shape
    x = x.permute(0, 2, 3, 1).reshape(b, h, w, groups, c // groups)
    x = x.transpose(3, 4).reshape(b, h, w, c)
    return x.permute(0, 3, 1, 2)


def conv_bn(cin, cout, k, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, k, stride, k // 2, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class Unit(nn.Module):
    def __init__(self, channels, shuffle):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(conv_bn(half, half, 1), conv_bn(half, half, 3))
        self.shuffle = shuffle

    def forward(self, x):
        keep, work = x.chunk(2, dim=1)
        return self.shuffle(torch.cat((keep, self.branch(work)), dim=1))


class Reduce(nn.Module):
    def __init__(self, cin, cout, shuffle):
        super().__init__()
        half = cout // 2
        self.left = conv_bn(cin, half, 3, 2)
        self.right = nn.Sequential(conv_bn(cin, half, 1), conv_bn(half, half, 3, 2))
        self.shuffle = shuffle

    def forward(self, x):
        return self.shuffle(torch.cat((self.left(x), self.right(x)), dim=1))


class ShuffleNet(nn.Module):
    def __init__(self, widths, depths, shuffle, classes):
        super().__init__()
        self.stem = conv_bn(3, widths[0] // 2, 3, 2)
        stages, cin = [], widths[0] // 2
        for width, depth in zip(widths, depths):
            stages.append(Reduce(cin, width, shuffle))
            stages.extend(Unit(width, shuffle) for _ in range(depth))
            cin = width
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(cin, classes)

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean(dim=(2, 3)))


def main():
    args = parse_args(["slow", "fixed"], 160)
    device = torch.device(args.device)
    big = args.device == "cuda"
    batch, side, widths, depths = (512, 224, (128, 256, 512), (4, 8, 4)) if big else (4, 32, (16, 32, 64), (1, 1, 1))
    torch.manual_seed(0)
    shuffle = {"slow": shuffle_planes, "fixed": shuffle_pixels}[args.variant]
    model = ShuffleNet(widths, depths, shuffle, 1000).to(device, memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, foreach=True)
    mean = torch.tensor([123.7, 116.3, 103.5], device=device).view(1, 3, 1, 1)
    std = torch.tensor([58.4, 57.1, 57.4], device=device).view(1, 3, 1, 1)
    pool = [(torch.randint(0, 256, (batch, side, side, 3), dtype=torch.uint8, device=device).permute(0, 3, 1, 2),
             torch.randint(1000, (batch,), device=device)) for _ in range(4)]

    def step(i):
        images, labels = pool[i % len(pool)]
        x = ((images.float() - mean) / std).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(x)
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.1)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()

    run_steps("x03", args, step, device)


if __name__ == "__main__":
    main()
