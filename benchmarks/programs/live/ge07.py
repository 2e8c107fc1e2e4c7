"""Training of a centre-point detector with box, mask and attribute targets."""
import argparse
import json
import statistics
import time
import resource

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ge07"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 600
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


FIELDS = ("boxes", "labels", "masks", "area", "crowd", "difficulty", "image_id")


class Scenes(torch.utils.data.Dataset):
    """Synthetic street scenes with between one and twelve objects."""

    def __init__(self, count, size, mask):
        self.count, self.size, self.mask = count, size, mask
        rng = np.random.default_rng(0)
        self.texture = rng.integers(0, 255, (3, 2 * size, 2 * size), dtype=np.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        y, x = rng.integers(0, self.size, 2)
        image = self.texture[:, y:y + self.size, x:x + self.size].copy()
        n = int(rng.integers(1, 13))
        corner = rng.uniform(0, 0.7, (n, 2)).astype(np.float32)
        extent = rng.uniform(0.05, 0.3, (n, 2)).astype(np.float32)
        for c, e, shade in zip((corner * self.size).astype(int), (extent * self.size).astype(int),
                               rng.integers(0, 255, n)):
            image[:, c[1]:c[1] + e[1], c[0]:c[0] + e[0]] = shade
        target = {"boxes": torch.from_numpy(np.concatenate([corner, corner + extent], 1)),
                  "labels": torch.from_numpy(rng.integers(0, 8, n)),
                  "masks": torch.from_numpy(rng.integers(0, 2, (n, self.mask, self.mask), dtype=np.uint8)),
                  "area": torch.from_numpy(extent.prod(1)),
                  "crowd": torch.zeros(n, dtype=torch.bool),
                  "difficulty": torch.from_numpy(rng.random(n, dtype=np.float32)),
                  "image_id": torch.tensor([index])}
        return torch.from_numpy(image), target


def collate_samples(samples):
    images, targets = zip(*samples)
    return torch.stack(images), list(targets)


def collate_packed(samples):
    images, targets = zip(*samples)
    packed = {name: torch.cat([t[name] for t in targets]) for name in FIELDS}
    packed["counts"] = torch.tensor([len(t["boxes"]) for t in targets])
    return torch.stack(images), packed


def targets_to_device(targets, device):
    if isinstance(targets, dict):
        counts = targets["counts"].tolist()
        moved = {name: targets[name].to(device, non_blocking=True) for name in FIELDS}
        parts = {name: moved[name].split(1 if name == "image_id" else counts) for name in FIELDS}
        return [{name: parts[name][i] for name in FIELDS} for i in range(len(counts))]
    return [{name: value.to(device, non_blocking=True) for name, value in t.items()} for t in targets]


class Stage(nn.Sequential):
    def __init__(self, inputs, outputs, stride):
        super().__init__(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True),
                         nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True))


class Detector(nn.Module):
    def __init__(self, width, classes=8):
        super().__init__()
        self.stem = Stage(3, width, 2)
        self.body = nn.Sequential(Stage(width, 2 * width, 2), Stage(2 * width, 4 * width, 2),
                                  Stage(4 * width, 4 * width, 1))
        self.heat = nn.Conv2d(4 * width, classes, 1)
        self.extent = nn.Conv2d(4 * width, 4, 1)
        self.hard = nn.Conv2d(4 * width, 1, 1)
        self.cover = nn.Conv2d(4 * width, 1, 1)

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.heat(x), self.extent(x), self.hard(x), self.cover(x)


def detection_loss(outputs, targets):
    heat, extent, hard, cover = (o.float() for o in outputs)
    side = heat.shape[-1]
    counts = [len(t["boxes"]) for t in targets]
    owner = torch.arange(len(targets)).repeat_interleave(torch.tensor(counts)).to(heat.device, non_blocking=True)
    boxes, labels, areas, crowd, difficulty, masks = (
        torch.cat([t[name] for t in targets]) for name in ("boxes", "labels", "area", "crowd", "difficulty", "masks"))
    cell = ((boxes[:, :2] + boxes[:, 2:]) * 0.5 * side).long().clamp_(0, side - 1)
    goal = torch.zeros_like(heat)
    goal[owner, labels, cell[:, 1], cell[:, 0]] = 1.0
    weight = (~crowd).float() * (1 - areas)
    classes = F.binary_cross_entropy_with_logits(heat, goal)
    box = (F.smooth_l1_loss(extent[owner, :, cell[:, 1], cell[:, 0]], boxes, reduction="none").mean(1) * weight).mean()
    grade = F.mse_loss(hard[owner, 0, cell[:, 1], cell[:, 0]], difficulty)
    filled = masks.float().mean((1, 2))
    return classes + box + grade + F.mse_loss(cover[owner, 0, cell[:, 1], cell[:, 0]], filled)


class Epochs:
    def __init__(self, cfg, device, variant):
        self.cfg, self.device = cfg, device
        self.loader = torch.utils.data.DataLoader(
            Scenes(cfg["images"], cfg["size"], cfg["mask"]), batch_size=cfg["batch"], shuffle=True,
            num_workers=cfg["workers"], persistent_workers=True, drop_last=True,
            pin_memory=device.type == "cuda", prefetch_factor=2,
            collate_fn=collate_packed if variant == "fixed" else collate_samples)
        self.model = Detector(cfg["width"]).to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.batches = iter(self.loader)

    def next_batch(self):
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)

    def step(self):
        images, targets = self.next_batch()
        images = images.to(self.device, non_blocking=True)
        targets = targets_to_device(targets, self.device)
        images = images.float().div_(255).contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            outputs = self.model(images)
        loss = detection_loss(outputs, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def main():
    args = parse_args()
    device = torch.device(args.device)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    if device.type == "cuda":
        cfg = dict(images=24000, size=256, mask=28, batch=32, workers=8, width=48)
    else:
        cfg = dict(images=64, size=64, mask=14, batch=8, workers=1, width=8)
    run_loop(args, device, Epochs(cfg, device, args.variant).step)


if __name__ == "__main__":
    main()
