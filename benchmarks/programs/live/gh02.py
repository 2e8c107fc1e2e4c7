"""Land-cover segmentation training with running quality figures."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gh02"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 2000
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=30.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(min(WARMUP, max(1, args.steps))):
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

class ConvBlock(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.body(x)


class CoverNet(nn.Module):
    def __init__(self, bands, classes, width):
        super().__init__()
        self.stem = nn.Conv2d(bands, width, 4, stride=4)
        self.down1 = ConvBlock(width, width * 2)
        self.down2 = ConvBlock(width * 2, width * 4)
        self.mid = ConvBlock(width * 4, width * 4)
        self.up2 = ConvBlock(width * 8, width * 2)
        self.up1 = ConvBlock(width * 4, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        s = self.stem(x)
        a = self.down1(s)
        b = self.down2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.up2(torch.cat([F.interpolate(m, scale_factor=2.0), b], 1))
        y = self.up1(torch.cat([F.interpolate(y, scale_factor=2.0), a], 1))
        y = self.head(y)
        return F.interpolate(y, scale_factor=4.0, mode="bilinear", align_corners=False)


def count_codes(codes, minlength, variant):
    if variant == "fixed":
        return torch.bincount(codes, minlength=minlength)
    mesh = torch.arange(minlength, device=codes.device).repeat(len(codes), 1)
    return torch.eq(codes.reshape(-1, 1), mesh).sum(dim=0)


class AgreementTable:
    def __init__(self, classes, device, variant, ignore=255):
        self.classes = classes
        self.variant = variant
        self.ignore = ignore
        self.table = torch.zeros(classes, classes, dtype=torch.long, device=device)

    def update(self, predicted, target):
        predicted, target = predicted.reshape(-1), target.reshape(-1)
        spare = self.classes * self.classes
        codes = torch.where(target != self.ignore, target * self.classes + predicted, spare)
        counted = count_codes(codes, spare + 1, self.variant)
        self.table += counted[:spare].view(self.classes, self.classes)

    def scores(self):
        t = self.table.double()
        inter = t.diagonal()
        union = t.sum(0) + t.sum(1) - inter
        iou = inter / union.clamp_min(1)
        return {"miou": iou.mean().item(), "accuracy": (inter.sum() / t.sum().clamp_min(1)).item()}

    def reset(self):
        self.table.zero_()


class TilePool:
    def __init__(self, tiles, batch, size, bands, classes, device):
        g = torch.Generator(device=device).manual_seed(3)
        coarse = torch.randn(tiles, classes, size // 32, size // 32, generator=g, device=device)
        labels = []
        for c in coarse.split(2):
            labels.append(F.interpolate(c, size=(size, size), mode="bilinear").argmax(1))
        self.labels = torch.cat(labels)
        self.labels[:, :4, :] = 255
        palette = torch.randn(256, bands, generator=g, device=device)
        image = palette[self.labels].permute(0, 3, 1, 2)
        image = image + 0.4 * torch.randn(image.shape, generator=g, device=device)
        self.images = image.contiguous(memory_format=torch.channels_last)
        self.batch = batch
        self.g = g

    def draw(self):
        pick = torch.randint(0, len(self.labels), (self.batch,), generator=self.g, device=self.labels.device)
        return self.images[pick].contiguous(memory_format=torch.channels_last), self.labels[pick]


class Trainer:
    def __init__(self, model, pool, table, device):
        self.model, self.pool, self.table, self.device = model, pool, table, device
        fused = device.type == "cuda"
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=fused)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 5000)
        self.seen = 0
        self.history = []

    def learn(self, images, labels):
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(images)
        loss = F.cross_entropy(logits.float(), labels, ignore_index=255)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return logits.detach(), loss.detach()

    def step(self):
        images, labels = self.pool.draw()
        logits, loss = self.learn(images, labels)
        self.table.update(logits.argmax(1), labels)
        self.seen += 1
        if self.seen % 50 == 0:
            self.history.append({"loss": loss.item(), **self.table.scores()})
            self.table.reset()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    if device.type == "cuda":
        batch, size, bands, classes, width = 8, 512, 6, 27, 64
        torch.backends.cudnn.benchmark = True
    else:
        batch, size, bands, classes, width = 1, 64, 6, 27, 8
    model = CoverNet(bands, classes, width).to(device, memory_format=torch.channels_last)
    pool = TilePool(batch * 4, batch, size, bands, classes, device)
    table = AgreementTable(classes, device, args.variant)
    trainer = Trainer(model, pool, table, device)
    run_loop(args, device, trainer.step)


if __name__ == "__main__":
    main()
