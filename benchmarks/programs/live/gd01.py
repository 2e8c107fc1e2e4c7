"""Trains a U-Net for two-class segmentation of tiles, with the batch size settled by what the device can hold."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate.utils import find_executable_batch_size

PROGRAM = "gd01"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 900
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=45.0)
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


class ConvPair(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(cout)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(x)), inplace=True)


class UNet(nn.Module):
    def __init__(self, channels, width, depth, classes):
        super().__init__()
        widths = [width * 2 ** i for i in range(depth)]
        self.stem = ConvPair(channels, widths[0])
        self.down = nn.ModuleList(ConvPair(a, b) for a, b in zip(widths[:-1], widths[1:]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2)
                                for a, b in reversed(list(zip(widths[:-1], widths[1:]))))
        self.merge = nn.ModuleList(ConvPair(2 * a, a) for a in reversed(widths[:-1]))
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        x = self.stem(x)
        skips = [x]
        for block in self.down:
            x = block(F.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([skips.pop(), up(x)], dim=1))
        return self.head(x)


def soft_dice(logits, target):
    probs = logits.float().softmax(1)[:, 1]
    truth = target.float()
    overlap = (probs * truth).sum((1, 2))
    return 1 - ((2 * overlap + 1) / (probs.sum((1, 2)) + truth.sum((1, 2)) + 1)).mean()


class TilePool:
    """Tiles held on the device; batches are drawn at random positions of the pool."""

    def __init__(self, count, size, device):
        generator = torch.Generator(device="cpu").manual_seed(3)
        noise = torch.rand(count, 4, size // 16, size // 16, generator=generator).to(device)
        images = F.interpolate(noise, size=(size, size), mode="bilinear")
        self.masks = (images[:, 0] > 0.5).long()
        self.images = images.to(memory_format=torch.channels_last)
        self.device = device

    def draw(self, batch_size):
        rows = torch.randint(len(self.images), (batch_size,), device=self.device)
        return self.images[rows], self.masks[rows]


class Trainer:
    def __init__(self, model, pool, device, start_batch, variant):
        self.model, self.pool, self.device = model, pool, device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=1e-2,
                                           fused=device.type == "cuda")
        self.running, self.count = torch.zeros((), device=device), 0
        self.sized_update = find_executable_batch_size(self.update, starting_batch_size=start_batch)
        self.batch_size = None
        if variant == "fixed":
            self.batch_size = find_executable_batch_size(self.probe, starting_batch_size=start_batch)()

    def objective(self, images, masks):
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(images)
        return F.cross_entropy(logits.float(), masks) + soft_dice(logits, masks)

    def probe(self, batch_size):
        self.objective(*self.pool.draw(batch_size)).backward()
        self.optimizer.zero_grad(set_to_none=True)
        return batch_size

    def update(self, batch_size):
        images, masks = self.pool.draw(batch_size)
        loss = self.objective(images, masks)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def step(self):
        loss = self.sized_update() if self.batch_size is None else self.update(self.batch_size)
        self.running += loss
        self.count += 1
        if self.count % 50 == 0:
            self.running.zero_()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    big = device.type == "cuda"
    model = UNet(4, 48 if big else 4, 5 if big else 3, 2).to(device, memory_format=torch.channels_last)
    pool = TilePool(64 if big else 8, 384 if big else 32, device)
    trainer = Trainer(model, pool, device, 12 if big else 2, args.variant)
    run_loop(args, device, trainer.step)


if __name__ == "__main__":
    main()
