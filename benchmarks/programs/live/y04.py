"""Offline evaluation of an anchor-free detector: forward, decoding, per-class suppression, top detections."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torchvision.ops import batched_nms

SCORE_THRESHOLD = 0.001
MAX_DETECTIONS = 300
MAX_CANDIDATES = {"slow": 30000, "fixed": 1000}


class Tower(nn.Sequential):
    def __init__(self, c, depth):
        layers = []
        for _ in range(depth):
            layers += [nn.Conv2d(c, c, 3, padding=1), nn.GroupNorm(32, c), nn.ReLU(inplace=True)]
        super().__init__(*layers)


class Detector(nn.Module):
    def __init__(self, resnet, widths, c, classes, depth):
        super().__init__()
        self.stem = nn.Sequential(resnet.conv1, resnet.bn1, resnet.relu, resnet.maxpool, resnet.layer1)
        self.stages = nn.ModuleList((resnet.layer2, resnet.layer3, resnet.layer4))
        self.lateral = nn.ModuleList(nn.Conv2d(w, c, 1) for w in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1) for _ in widths)
        self.p6 = nn.Conv2d(c, c, 3, stride=2, padding=1)
        self.cls_tower, self.box_tower = Tower(c, depth), Tower(c, depth)
        self.cls = nn.Conv2d(c, classes, 3, padding=1)
        self.box = nn.Conv2d(c, 4, 3, padding=1)
        nn.init.normal_(self.cls.weight, std=0.03)
        with torch.no_grad():
            self.cls.weight -= self.cls.weight.mean((1, 2, 3), keepdim=True)
        nn.init.constant_(self.cls.bias, -3.0)

    def forward(self, x):
        x = self.stem(x)
        feats = []
        for stage in self.stages:
            x = stage(x)
            feats.append(x)
        maps = [lat(f) for lat, f in zip(self.lateral, feats)]
        for i in (1, 0):
            maps[i] = maps[i] + F.interpolate(maps[i + 1], size=maps[i].shape[-2:], mode="nearest")
        maps = [s(m) for s, m in zip(self.smooth, maps)]
        maps.append(self.p6(maps[-1]))
        scores, boxes = [], []
        for m in maps:
            scores.append(self.cls(self.cls_tower(m)).flatten(2).mT)
            boxes.append(self.box(self.box_tower(m)).flatten(2).mT)
        return torch.cat(scores, 1).float().sigmoid(), torch.cat(boxes, 1).float()


def centers(size, strides, device):
    out = []
    for s in strides:
        h, w = -(-size[0] // s), -(-size[1] // s)
        y, x = torch.meshgrid(torch.arange(h, device=device), torch.arange(w, device=device), indexing="ij")
        out.append(torch.stack((x * s + s / 2, y * s + s / 2, torch.full_like(x, s)), -1).reshape(-1, 3).float())
    return torch.cat(out)


def select(scores, boxes, max_candidates):
    classes = scores.shape[1]
    flat = torch.where(scores > SCORE_THRESHOLD, scores, 0.0).flatten()
    top, order = flat.topk(min(max_candidates, flat.numel()))
    labels = order % classes
    cand = boxes[order // classes]
    keep = batched_nms(cand, top, labels, 0.6)[:MAX_DETECTIONS]
    return cand[keep], top[keep], labels[keep]


class Run:
    def __init__(self, args):
        torch.manual_seed(0)
        cuda = args.device == "cuda"
        self.limit = MAX_CANDIDATES[args.variant]
        if cuda:
            self.batch, self.size, c, classes, depth, dtype = 8, (800, 1024), 256, 20, 4, torch.bfloat16
            resnet, widths = torchvision.models.resnet50(weights=None), (512, 1024, 2048)
        else:
            self.batch, self.size, c, classes, depth, dtype = 1, (128, 160), 32, 20, 1, torch.float32
            resnet, widths = torchvision.models.resnet18(weights=None), (128, 256, 512)
        net = Detector(resnet, widths, c, classes, depth).eval().requires_grad_(False)
        self.net = net.to(args.device, dtype, memory_format=torch.channels_last)
        self.dtype, self.device = dtype, args.device
        grid = centers(self.size, (8, 16, 32, 64), args.device)
        self.xy, self.stride = grid[:, :2], grid[:, 2:]
        coarse = torch.rand(4, self.batch, 3, self.size[0] // 16, self.size[1] // 16)
        images = F.interpolate(coarse.flatten(0, 1), size=self.size, mode="bilinear").view(4, self.batch, 3, *self.size)
        images = (255 * images + 20 * torch.rand_like(images)).clamp(0, 255).byte()
        self.images = images.pin_memory() if cuda else images
        self.results, self.i = [], 0

    @torch.inference_mode()
    def step(self):
        x = self.images[self.i % 4].to(self.device, non_blocking=True)
        self.i += 1
        x = x.to(self.dtype, memory_format=torch.channels_last).sub_(114.0).div_(58.0)
        scores, deltas = self.net(x)
        extent = F.softplus(deltas).view(self.batch, -1, 2, 2) * self.stride[:, None]
        boxes = torch.cat((self.xy - extent[:, :, 0], self.xy + extent[:, :, 1]), -1)
        found = [select(s, b, self.limit) for s, b in zip(scores, boxes)]
        self.results = self.results[-50:] + [tuple(torch.cat(part).cpu() for part in zip(*found))]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=220)
    p.add_argument("--max-seconds", type=float, default=1e9)
    p.add_argument("--trace")
    args = p.parse_args()
    run = Run(args)
    sync = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)

    for _ in range(5):
        run.step()
    sync()
    times, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        run.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if now - start > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - start) / len(times)
    print(json.dumps({"program": "y04", "variant": args.variant, "steps": len(times),
                      "step_ms_mean": round(1e3 * mean, 3),
                      "step_ms_median": round(1e3 * statistics.median(times), 3)}), flush=True)

    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if args.device == "cuda" else [])
        with profile(activities=acts, schedule=schedule(wait=0, warmup=2, active=4), record_shapes=True,
                     with_stack=True, with_modules=True,
                     on_trace_ready=lambda prof: prof.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                run.step()
                prof.step()


if __name__ == "__main__":
    main()
