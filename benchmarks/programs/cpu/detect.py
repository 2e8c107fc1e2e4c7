"""Run the shelf detector over a folder of (synthetic) photos and write the boxes."""

import json
import statistics
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


class Backbone(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        layers, c = [], 3
        for out in (width, width * 2, width * 4):
            layers += [
                nn.Conv2d(c, out, 3, stride=2, padding=1),
                nn.BatchNorm2d(out),
                nn.SiLU(),
                nn.Conv2d(out, out, 3, padding=1),
                nn.BatchNorm2d(out),
                nn.SiLU(),
            ]
            c = out
        self.body = nn.Sequential(*layers)
        self.out_channels = c

    def forward(self, x):
        return self.body(x)


class Detector(nn.Module):
    def __init__(self, stride=8):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Conv2d(self.backbone.out_channels, 5, 1)
        self.stride = stride

    def forward(self, x):
        p = self.head(self.backbone(x))
        n, _, h, w = p.shape
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        cx = (xs + p[:, 0].sigmoid()) * self.stride
        cy = (ys + p[:, 1].sigmoid()) * self.stride
        bw = 6 + 20 * p[:, 2].sigmoid()
        bh = 6 + 20 * p[:, 3].sigmoid()
        boxes = torch.stack([cx - bw / 2, cy - bh / 2, cx + bw / 2, cy + bh / 2], dim=-1)
        return boxes.reshape(n, -1, 4), p[:, 4].sigmoid().reshape(n, -1)


def iou_one(box, boxes):
    lt = torch.max(box[:2], boxes[:, :2])
    rb = torch.min(box[2:], boxes[:, 2:])
    wh = (rb - lt).clamp(min=0)
    inter = wh[:, 0] * wh[:, 1]
    area = (box[2] - box[0]) * (box[3] - box[1])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return inter / (area + areas - inter)


def nms(boxes, scores, threshold=0.5):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        best = order[0]
        keep.append(best.item())
        if order.numel() == 1:
            break
        rest = order[1:]
        order = rest[iou_one(boxes[best], boxes[rest]) <= threshold]
    return torch.tensor(keep)


def load_photo(i):
    rng = np.random.default_rng(i)
    return torch.from_numpy(rng.integers(0, 255, (3, 256, 256), dtype=np.uint8)).float() / 255


@torch.inference_mode()
def main(n_photos=120, batch=2):
    torch.manual_seed(0)
    model = Detector().eval()
    results, times = [], []
    t0 = time.perf_counter()
    for start in range(0, n_photos, batch):
        t = time.perf_counter()
        images = torch.stack([load_photo(i) for i in range(start, start + batch)])
        boxes, scores = model(images)
        for b, s in zip(boxes, scores):
            keep = nms(b, s)
            results.append({"boxes": b[keep].tolist(), "scores": s[keep].tolist()})
        times.append(time.perf_counter() - t)
        if start % 20 == 0:
            print(f"{start}/{n_photos} photos, {len(results[-1]['boxes'])} boxes", flush=True)
    with open("/tmp/blindcpu_boxes.json", "w") as f:
        json.dump(results[:10], f)
    print(
        f"median step {statistics.median(times) * 1e3:.2f} ms  total {time.perf_counter() - t0:.2f} s"
    )


if __name__ == "__main__":
    main()
