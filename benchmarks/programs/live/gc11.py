"""Image classification from Python-decoded samples: loader workers, device-side normalisation, a wide transformer."""
import argparse
import json
import random
import zlib
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import numpy as np
from torch.utils.data import DataLoader, Dataset

PROGRAM = "gc11"
CHOICES = ["healthy"]
DEFAULT_STEPS = 330
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


class PackedImages(Dataset):
    def __init__(self, count, side, length):
        rng = np.random.default_rng(1)
        self.side, self.length = side, length
        self.records = []
        for i in range(count):
            coarse = rng.integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8)
            image = coarse.repeat(8, 0).repeat(8, 1)
            self.records.append({"data": zlib.compress(image.tobytes(), 3), "label": i % 50, "name": f"img{i:06d}"})

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        record = self.records[index % len(self.records)]
        image = np.frombuffer(zlib.decompress(record["data"]), np.uint8).reshape(self.side, self.side, 3)
        for change in (self.flip, self.roll, self.erase, self.gamma):
            image = change(image)
        return {"image": torch.from_numpy(np.ascontiguousarray(image)), "label": record["label"],
                "name": record["name"]}

    def flip(self, image):
        return image[:, ::-1] if random.random() < 0.5 else image

    def roll(self, image):
        return np.roll(image, (random.randrange(-16, 17), random.randrange(-16, 17)), (0, 1))

    def erase(self, image):
        image = image.copy()
        for _ in range(4):
            y, x = random.randrange(self.side * 3 // 4), random.randrange(self.side * 3 // 4)
            image[y:y + self.side // 6, x:x + self.side // 6] = random.randrange(256)
        return image

    def gamma(self, image):
        table = (255 * (np.arange(256) / 255) ** random.uniform(0.7, 1.4)).astype(np.uint8)
        return table[image]


def gather(samples):
    return {"image": torch.stack([s["image"] for s in samples]),
            "label": torch.tensor([s["label"] for s in samples]),
            "name": [s["name"] for s in samples]}


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = (y.transpose(1, 2) for y in self.qkv(self.n1(x)).view(b, n, 3, self.heads, -1).unbind(2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Classifier(nn.Module):
    def __init__(self, side, patch, dim, depth, heads, classes):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, dim)
        self.pos = nn.Parameter(torch.randn((side // patch) ** 2, dim) * 0.02)
        self.layers = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, images):
        b, h, w, c = images.shape
        p = self.patch
        x = images.view(b, h // p, p, w // p, p, c).transpose(2, 3).reshape(b, -1, p * p * c)
        x = self.embed(x) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x.mean(1)))


class Meter:
    def __init__(self):
        self.hit = self.seen = 0
        self.loss = 0.0

    def add(self, loss, logits, labels):
        self.loss += loss.item()
        self.hit += (logits.argmax(1) == labels).sum().item()
        self.seen += len(labels)


class Run:
    def __init__(self, model, loader, device, dtype):
        self.model, self.loader, self.device, self.dtype = model, loader, device, dtype
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.meter, self.names = Meter(), []
        self.batches = self.forever()

    def forever(self):
        while True:
            for batch in self.loader:
                yield batch
            self.meter = Meter()

    def step(self):
        batch = next(self.batches)
        images = batch["image"].to(self.device, non_blocking=True)
        labels = batch["label"].to(self.device, non_blocking=True)
        self.names = (self.names + batch["name"])[-256:]
        logits = self.model(images.to(self.dtype).sub_(127.5).div_(64.0))
        loss = F.cross_entropy(logits.float(), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.meter.add(loss.detach(), logits.detach(), labels)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(7)
    big = device.type == "cuda"
    side, dim, depth, heads, batch, workers, length = \
        (256, 3072, 5, 24, 64, 8, 64 * 400) if big else (64, 64, 2, 2, 4, 1, 64)
    data = PackedImages(400 if big else 16, side, length)
    loader = DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers, collate_fn=gather,
                        pin_memory=big, persistent_workers=True, prefetch_factor=4, drop_last=True)
    dtype = torch.bfloat16 if big else torch.float32
    with torch.device(device):
        model = Classifier(side, 16, dim, depth, heads, 50).to(dtype)
    run = Run(model, loader, device, dtype)
    run_loop(args, device, run.step)


if __name__ == "__main__":
    main()
