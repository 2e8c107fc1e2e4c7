"""Small one-stage detector on synthetic scenes; two loader workers."""
import argparse
import json
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES, GRID = 8, 12


class Scenes(Dataset):
    def __init__(self, count, size=96):
        self.count, self.size = count, size
        rng = np.random.default_rng(0)
        self.background = rng.integers(0, 80, (64, 3, size, size), dtype=np.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        image = self.background[i % 64].copy()
        n = int(rng.integers(2, 9))
        corner = rng.integers(0, self.size - 26, (n, 2))
        extent = rng.integers(8, 26, (n, 2))
        labels = rng.integers(0, CLASSES, n)
        for (x, y), (w, h), label in zip(corner, extent, labels):
            image[label % 3, y : y + h, x : x + w] = 120 + 15 * label
        boxes = np.concatenate([corner, corner + extent], 1).astype(np.float32)
        target = {
            "boxes": torch.from_numpy(boxes),
            "labels": torch.from_numpy(labels),
            "area": torch.from_numpy(extent.prod(1).astype(np.float32)),
            "iscrowd": torch.zeros(n, dtype=torch.uint8),
            "difficult": torch.from_numpy(extent.min(1) < 10),
            "image_id": torch.tensor([i]),
            "size": torch.tensor([self.size, self.size]),
        }
        return torch.from_numpy(image), target


def gather_lists(samples):
    return tuple(zip(*samples))


def gather_packed(samples):
    images, targets = zip(*samples)
    counts = torch.tensor([len(t["labels"]) for t in targets])
    packed = {k: torch.cat([t[k] for t in targets]) for k in targets[0]}
    return torch.stack(images), counts, packed


class Detector(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        def conv(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))
        self.body = nn.Sequential(conv(3, width, 2), conv(width, width * 2, 2), conv(width * 2, width * 2, 1),
                                  conv(width * 2, width * 4, 2), conv(width * 4, width * 4, 1))
        self.head = nn.Conv2d(width * 4, CLASSES + 1 + 4, 1)

    def forward(self, images):
        return self.head(self.body(images)).permute(0, 2, 3, 1)


def assign(boxes, labels, rows, size, shape):
    """Cell targets for all boxes of a batch."""
    centre = (boxes[:, :2] + boxes[:, 2:]) / 2
    cell = (centre / size * GRID).long().clamp_(0, GRID - 1)
    classes = torch.full(shape, CLASSES)
    classes[rows, cell[:, 1], cell[:, 0]] = labels
    wanted = torch.stack([(boxes[:, 2] - boxes[:, 0]) / size, (boxes[:, 3] - boxes[:, 1]) / size,
                          centre[:, 0] / size, centre[:, 1] / size], 1)
    return classes, cell, wanted


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    ap.add_argument("--steps", type=int, default=180)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(Scenes(40 * 1000), batch_size=40, shuffle=True, num_workers=2, drop_last=True,
                        persistent_workers=True,
                        collate_fn=gather_lists if args.variant == "slow" else gather_packed)
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    times, start = [], time.perf_counter()
    t = time.perf_counter()
    for batch in loader:
        if args.variant == "slow":
            images = torch.stack(batch[0])
            counts = torch.tensor([len(x["labels"]) for x in batch[1]])
            boxes = torch.cat([x["boxes"] for x in batch[1]])
            labels = torch.cat([x["labels"] for x in batch[1]])
        else:
            images, counts, packed = batch
            boxes, labels = packed["boxes"], packed["labels"]
        rows = torch.repeat_interleave(torch.arange(len(counts)), counts)
        out = model(images.float().div_(255))
        classes, cell, wanted = assign(boxes, labels, rows, 96, out.shape[:3])
        found = out[rows, cell[:, 1], cell[:, 0]]
        loss = F.cross_entropy(out[..., : CLASSES + 1].flatten(0, 2), classes.flatten())
        loss = loss + F.smooth_l1_loss(found[:, CLASSES + 1 :], wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        times.append((time.perf_counter() - t) * 1e3)
        if len(times) % 50 == 0:
            print(f"step {len(times)} loss {loss.item():.3f}", flush=True)
        if len(times) >= args.steps or time.perf_counter() - start > args.max_seconds:
            break
        t = time.perf_counter()
    kept = sorted(times[5:])
    print(json.dumps({"mean_ms": round(sum(kept) / len(kept), 2), "median_ms": round(kept[len(kept) // 2], 2),
                      "steps": len(times)}))


if __name__ == "__main__":
    main()
