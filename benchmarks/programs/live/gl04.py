"""A transformer detector trained on synthetic pictures that DataLoader workers prepare."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PROGRAM = "gl04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 500
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=50.0)
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


class Scenes(Dataset):
    def __init__(self, length, bank, canvas, crop, classes):
        gen = torch.Generator().manual_seed(11)
        self.bank = torch.randint(0, 256, (bank, 3, canvas, canvas), generator=gen, dtype=torch.uint8)
        counts = torch.randint(4, 28, (bank,), generator=gen)
        self.objects = []
        for n in counts.tolist():
            centre = torch.rand(n, 2, generator=gen)
            extent = 0.05 + 0.2 * torch.rand(n, 2, generator=gen)
            self.objects.append((torch.cat([centre, extent], dim=1),
                                 torch.randint(0, classes, (n,), generator=gen)))
        self.length, self.canvas, self.crop = length, canvas, crop

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        which = index % self.bank.shape[0]
        room = self.canvas - self.crop
        dy, dx = torch.randint(0, room + 1, (2,)).tolist()
        image = self.bank[which, :, dy:dy + self.crop, dx:dx + self.crop]
        boxes, labels = self.objects[which]
        offset = torch.tensor([dx / self.canvas, dy / self.canvas, 0.0, 0.0])
        boxes = (boxes - offset) * (self.canvas / self.crop)
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
            boxes = torch.cat([1 - boxes[:, :1], boxes[:, 1:]], dim=1)
        boxes = boxes.clamp(0, 1)
        target = {"boxes": boxes, "labels": labels.clone(), "area": boxes[:, 2] * boxes[:, 3]}
        return image, target


def pack(targets):
    boxes = pad_sequence([t["boxes"] for t in targets], batch_first=True)
    labels = pad_sequence([t["labels"] for t in targets], batch_first=True, padding_value=-1)
    area = pad_sequence([t["area"] for t in targets], batch_first=True)
    return {"boxes": boxes, "labels": labels, "area": area}


def collate_plain(samples):
    images, targets = zip(*samples)
    return torch.stack(images), list(targets)


def collate_packed(samples):
    images, targets = zip(*samples)
    return torch.stack(images), pack(targets)


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class GridDetector(nn.Module):
    """Every cell of a grid predicts a class and a box."""

    def __init__(self, crop, patch, width, depth, heads, classes):
        super().__init__()
        self.side = crop // patch
        self.stem = nn.Conv2d(3, width, patch, stride=patch)
        self.place = nn.Parameter(torch.zeros(1, self.side ** 2, width))
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.cls, self.box = nn.Linear(width, classes + 1), nn.Linear(width, 4)

    def forward(self, images):
        x = self.stem(images).flatten(2).transpose(1, 2) + self.place
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.cls(x).float(), self.box(x).float().sigmoid()


def detection_loss(logits, boxes, target, side):
    valid = target["labels"] >= 0
    cell = (target["boxes"][..., :2] * side).long().clamp_(0, side - 1)
    cell = cell[..., 1] * side + cell[..., 0]
    background = logits.shape[-1] - 1
    wanted = torch.full(logits.shape[:2], background, device=logits.device)
    spare = torch.where(valid, target["labels"], torch.full_like(target["labels"], background))
    wanted.scatter_(1, cell, spare)
    cls = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
    picked = boxes.gather(1, cell.unsqueeze(-1).expand(-1, -1, 4))
    weight = valid * (2 - target["area"])
    l1 = ((picked - target["boxes"]).abs().sum(-1) * weight).sum() / valid.sum().clamp_min(1)
    return cls + 2.0 * l1


class Trainer:
    def __init__(self, model, loader, device):
        self.model, self.loader, self.device = model, loader, device
        self.opt = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=device.type == "cuda")
        self.mean = torch.tensor([123.0, 116.0, 104.0], device=device).view(1, 3, 1, 1)
        self.batches = iter(loader)

    def next_batch(self):
        try:
            return next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            return next(self.batches)

    def step(self):
        images, target = self.next_batch()
        if isinstance(target, list):
            target = pack(target)
        images = images.to(self.device, non_blocking=True)
        target = {k: v.to(self.device, non_blocking=True) for k, v in target.items()}
        images = (images.float() - self.mean) / 58.0
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits, boxes = self.model(images)
        loss = detection_loss(logits, boxes, target, self.model.side)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.loss = loss.detach()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    batch, workers, bank, classes, length = 80, 6, 512, 40, 80_000
    shape = dict(crop=128, patch=8, width=640, depth=8, heads=10)
    if device.type == "cpu":
        batch, workers, bank, length = 8, 1, 16, 800
        shape = dict(crop=32, patch=8, width=32, depth=1, heads=2)
    data = Scenes(length, bank, shape["crop"] * 3 // 2, shape["crop"], classes)
    collate = collate_packed if args.variant == "fixed" else collate_plain
    loader = DataLoader(data, batch_size=batch, shuffle=True, drop_last=True, num_workers=workers,
                        collate_fn=collate, persistent_workers=True, pin_memory=device.type == "cuda")
    model = GridDetector(classes=classes, **shape).to(device)
    trainer = Trainer(model, loader, device)
    run_loop(args, device, trainer.step)


if __name__ == "__main__":
    main()
