"""Single-stage detector on small crops; annotations come from DataLoader workers."""
import logging

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from blocks_e import StepTimes, base_parser

mp.set_sharing_strategy("file_system")
LOG = logging.getLogger("det")
KEYS = ("boxes", "labels", "area", "crowd", "difficult")


class Crops(Dataset):
    def __init__(self, n, size, seed=0):
        self.n, self.size = n, size
        rng = np.random.default_rng(seed)
        self.base = rng.integers(0, 255, (32, 3, size, size), dtype=np.uint8)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        k = int(rng.integers(1, 8))
        img = self.base[i % 32]
        if rng.random() < 0.5:
            img = img[:, :, ::-1]
        xy = rng.random((k, 2), dtype=np.float32) * 0.7
        wh = 0.05 + rng.random((k, 2), dtype=np.float32) * 0.25
        target = {
            "boxes": torch.from_numpy(np.concatenate([xy, xy + wh], 1)),
            "labels": torch.from_numpy(rng.integers(0, 20, k)),
            "area": torch.from_numpy(wh.prod(1)),
            "crowd": torch.zeros(k, dtype=torch.uint8),
            "difficult": torch.zeros(k, dtype=torch.uint8),
        }
        return torch.from_numpy(np.ascontiguousarray(img)), target


def collate_list(samples):
    images, targets = zip(*samples)
    return torch.stack(images), list(targets)


def collate_packed(samples):
    images, targets = zip(*samples)
    packed = {k: torch.cat([t[k] for t in targets]) for k in KEYS}
    packed["count"] = torch.tensor([len(t["labels"]) for t in targets])
    return torch.stack(images), packed


def to_device(targets, dev):
    if isinstance(targets, list):
        count = torch.tensor([len(t["labels"]) for t in targets])
        targets = {k: torch.cat([t[k] for t in targets]) for k in KEYS}
        targets["count"] = count
    image_of_box = torch.repeat_interleave(torch.arange(len(targets["count"])), targets["count"])
    return {k: v.to(dev, non_blocking=True) for k, v in targets.items()}, image_of_box.to(dev)


class Detector(nn.Module):
    def __init__(self, width, classes=20):
        super().__init__()
        chans = [3, width, 2 * width, 4 * width]
        layers = []
        for a, b in zip(chans, chans[1:]):
            layers += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                       nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers)
        self.cls, self.box = nn.Conv2d(chans[-1], classes, 1), nn.Conv2d(chans[-1], 4, 1)

    def forward(self, x):
        f = self.body(x)
        return self.cls(f), self.box(f)


def detection_loss(cls, box, t, owner):
    s = cls.shape[-1]
    centre = ((t["boxes"][:, :2] + t["boxes"][:, 2:]) / 2 * s).long().clamp(0, s - 1)
    cls_at = cls[owner, :, centre[:, 1], centre[:, 0]].float()
    box_at = box[owner, :, centre[:, 1], centre[:, 0]].float()
    keep = (t["crowd"] == 0).float()
    return (F.cross_entropy(cls_at, t["labels"], reduction="none") * keep).mean() \
        + (F.smooth_l1_loss(box_at, t["boxes"], reduction="none").sum(1) * keep).mean()


def main():
    args = base_parser().parse_args()
    logging.basicConfig(level=logging.INFO)
    dev = torch.device(args.device)
    torch.manual_seed(0)
    batch, size, width, workers = (4, 32, 8, 1) if args.tiny else (64, 64, 64, 4)
    warm = 1 if args.tiny else 6
    total = min(args.steps, 160) + warm
    loader = DataLoader(
        Crops(total * batch, size), batch_size=batch, shuffle=True, num_workers=workers,
        collate_fn=collate_list if args.variant == "slow" else collate_packed,
        pin_memory=dev.type == "cuda", drop_last=True)
    net = Detector(width).to(dev)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    times = StepTimes(dev)
    for step, (images, targets) in enumerate(loader):
        if step == warm:
            times.begin()
        x = images.to(dev, non_blocking=True).float().div_(255)
        t, owner = to_device(targets, dev)
        with torch.autocast(dev.type, dtype=torch.bfloat16):
            cls, box = net(x)
        loss = detection_loss(cls, box, t, owner)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 50 == 49:
            LOG.info("iter %d loss %.3f", step, loss.item())
        if step >= warm:
            times.tick()
    times.finish()


if __name__ == "__main__":
    main()
