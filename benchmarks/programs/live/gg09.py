"""Action recognition from short clips with a tubelet transformer and a worker-fed loader."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gg09"
CHOICES = ["healthy"]
DEFAULT_STEPS = 500
WARMUP = 8
FRAMES, SIDE, PATCH, CLASSES = 16, 112, 16, 400


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


class Clips(torch.utils.data.Dataset):
    """Random crops in time and space from a few long uint8 recordings."""

    def __init__(self, recordings=8, length=160):
        rng = np.random.default_rng(0)
        self.video = rng.integers(0, 256, (recordings, length, SIDE + 16, SIDE + 16, 3), dtype=np.uint8)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        start = rng.integers(0, self.video.shape[1] - 2 * FRAMES)
        top, left = rng.integers(0, 16, 2)
        clip = self.video[index % len(self.video), start:start + 2 * FRAMES:2, top:top + SIDE, left:left + SIDE]
        if rng.random() < 0.5:
            clip = clip[:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray(clip)), index % CLASSES


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, width)
        x = x + self.proj(h)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Tubelets(nn.Module):
    def __init__(self, width=1024, depth=12, heads=16):
        super().__init__()
        self.grid = (FRAMES // 2, SIDE // PATCH, SIDE // PATCH)
        self.embed = nn.Linear(2 * PATCH * PATCH * 3, width)
        self.place = nn.Parameter(torch.randn(1, self.grid[0] * self.grid[1] * self.grid[2], width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def patches(self, clips):
        n = clips.shape[0]
        t, h, w = self.grid
        x = clips.view(n, t, 2, h, PATCH, w, PATCH, 3).permute(0, 1, 3, 5, 2, 4, 6, 7)
        return x.reshape(n, t * h * w, -1)

    def forward(self, clips):
        x = self.patches(clips).to(torch.bfloat16).sub_(127.5).mul_(1 / 64)
        x = self.embed(x) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class Feed:
    """Keeps one batch in flight on a side stream."""

    def __init__(self, loader, device):
        self.loader, self.device = iter(loader), device
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None
        self.ahead = self.fetch()

    def fetch(self):
        clips, labels = next(self.loader)
        if self.stream is None:
            return clips, labels
        with torch.cuda.stream(self.stream):
            return clips.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)

    def __next__(self):
        batch = self.ahead
        if self.stream is not None:
            current = torch.cuda.current_stream()
            current.wait_stream(self.stream)
            for part in batch:
                part.record_stream(current)
        self.ahead = self.fetch()
        return batch


class Trainer:
    def __init__(self, args, device):
        cuda = device.type == "cuda"
        self.device = device
        self.model = Tubelets(**({} if cuda else dict(width=128, depth=2, heads=4))).to(device)
        decay = [p for p in self.model.parameters() if p.ndim > 1]
        plain = [p for p in self.model.parameters() if p.ndim <= 1]
        groups = [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
        self.opt = torch.optim.AdamW(groups, lr=1e-4, fused=cuda)
        loader = torch.utils.data.DataLoader(Clips(), batch_size=32 if cuda else 2, shuffle=False, drop_last=True,
                                             num_workers=6 if cuda else 1, pin_memory=cuda, prefetch_factor=4,
                                             persistent_workers=True)
        self.feed = Feed(loader, device)
        self.losses = torch.zeros(64, device=device)
        self.count = 0

    def step(self):
        clips, labels = next(self.feed)
        with torch.autocast(self.device.type, torch.bfloat16):
            logits = self.model(clips)
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.1)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.losses[self.count % 64] = loss.detach()
        self.count += 1
        if self.count % 64 == 0:
            print(json.dumps({"step": self.count, "loss": round(self.losses.mean().item(), 4)}), flush=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, Trainer(args, device).step)


if __name__ == "__main__":
    main()
