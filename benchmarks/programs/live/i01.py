"""Validation pass of a semantic segmentation network: mean IoU over 150 classes."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
CLASSES, BATCH, SIDE, WIDTH = (150, 8, 512, 256) if GPU else (12, 2, 32, 16)


def conv(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(
            conv(3, WIDTH // 4, 2), conv(WIDTH // 4, WIDTH // 2, 2), conv(WIDTH // 2, WIDTH, 2)
        )
        self.body = nn.Sequential(*[conv(WIDTH, WIDTH) for _ in range(8)])
        self.classify = nn.Conv2d(WIDTH, CLASSES, 1)

    def forward(self, images):
        coarse = self.classify(self.body(self.down(images)))
        return F.interpolate(coarse, scale_factor=8, mode="bilinear", align_corners=False)


class ValidationSet:
    """Street scenes: every image shows a couple of dozen classes in patches."""

    def __init__(self, seed):
        self.gen = torch.Generator(device=args.device).manual_seed(seed)

    def __iter__(self):
        while True:
            images = torch.randn(BATCH, 3, SIDE, SIDE, device=args.device, generator=self.gen)
            palette = torch.randint(CLASSES, (BATCH, 24), device=args.device, generator=self.gen)
            cells = torch.randint(24, (BATCH, 256), device=args.device, generator=self.gen)
            coarse = palette.gather(1, cells).view(BATCH, 16, 16)
            scale = SIDE // 16
            labels = coarse.repeat_interleave(scale, 1).repeat_interleave(scale, 2)
            yield images.to(memory_format=torch.channels_last), labels


class MeanIoU:
    """IoU of a class counts the images in which the class occurs."""

    def __init__(self):
        self.inter = torch.zeros(CLASSES, device=args.device)
        self.union = torch.zeros(CLASSES, device=args.device)

    def update(self, predicted, labels):
        for guess, truth in zip(predicted, labels):
            for c in range(CLASSES):
                where = truth == c
                if not where.any():
                    continue
                found = guess == c
                self.inter[c] += (where & found).sum()
                self.union[c] += (where | found).sum()

    def value(self):
        seen = self.union > 0
        return (self.inter[seen] / self.union[seen]).mean()


class TableIoU(MeanIoU):
    def update(self, predicted, labels):
        n = len(labels)
        image = torch.arange(n, device=labels.device).view(n, 1, 1)
        cell = (image * CLASSES + labels) * CLASSES + predicted
        table = torch.bincount(cell.flatten(), minlength=n * CLASSES**2)
        table = table.view(n, CLASSES, CLASSES)
        inter = table.diagonal(dim1=1, dim2=2)
        area = table.sum(2)
        union = (area + table.sum(1) - inter) * (area > 0)
        self.inter += inter.sum(0)
        self.union += union.sum(0)


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = Segmenter().to(args.device).to(memory_format=torch.channels_last).eval()
    metric = MeanIoU() if args.variant == "slow" else TableIoU()
    steps = 0
    begin = time.perf_counter()
    for images, labels in ValidationSet(5):
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=GPU):
            logits = model(images)
        metric.update(logits.argmax(1), labels)
        steps += 1
        if steps % 20 == 0:
            print(f"batch {steps} mIoU {float(metric.value()):.5f}", flush=True)
        if steps >= args.steps or time.perf_counter() - begin > args.max_seconds:
            break
    score = float(metric.value())
    took = time.perf_counter() - begin
    print(f"done steps={steps} ms_per_step={1e3 * took / steps:.2f} loss={score:.6f}")


if __name__ == "__main__":
    main()
