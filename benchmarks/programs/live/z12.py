"""Instance discrimination with memory banks (image and momentum view), data parallel.

    torchrun --nproc-per-node 2 z12.py --variant ...
"""
import argparse
import json
import os
import statistics
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

PROGRAM = "z12"


@dataclass
class BankConfig:
    stages: tuple = (3, 4, 6, 3)
    width: int = 64
    instances: int = 2_500_000
    dim: int = 256
    negatives: int = 16384
    batch: int = 160
    image: int = 128
    temperature: float = 0.07
    momentum: float = 0.5
    lr: float = 0.03

    @classmethod
    def for_device(cls, device):
        if device == "cpu":
            return cls(stages=(1, 1), width=8, instances=500, dim=16, negatives=32, batch=2, image=32)
        return cls()


WRAP = {
    "slow": dict(gradient_as_bucket_view=True),
    "fixed": dict(gradient_as_bucket_view=True, broadcast_buffers=False),
}


class InstanceDataset(torch.utils.data.Dataset):
    """Two uint8 crops for an instance id; the pixels come from a small shared pool."""

    def __init__(self, cfg):
        self.cfg = cfg
        g = torch.Generator().manual_seed(2)
        self.pool = torch.randint(0, 256, (256, 3, cfg.image + 32, cfg.image + 32), dtype=torch.uint8, generator=g)

    def __len__(self):
        return self.cfg.instances

    def crop(self, img):
        y, x = torch.randint(0, 32, (2,)).tolist()
        return img[:, y:y + self.cfg.image, x:x + self.cfg.image]

    def __getitem__(self, i):
        img = self.pool[i % 256]
        return self.crop(img), self.crop(img), i


def make_loader(cfg, rank, world, cuda):
    data = InstanceDataset(cfg)
    sampler = torch.utils.data.DistributedSampler(data, world, rank, shuffle=True)
    return torch.utils.data.DataLoader(data, cfg.batch, sampler=sampler, num_workers=6 if cuda else 0, pin_memory=cuda,
                                       drop_last=True, persistent_workers=cuda)


def cycle(loader):
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, stride):
        super().__init__()
        cout = 4 * mid
        self.conv1, self.bn1 = nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid)
        self.conv2, self.bn2 = nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid)
        self.conv3, self.bn3 = nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout)
        self.short = None
        if stride != 1 or cin != cout:
            self.short = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        return F.relu(y + (x if self.short is None else self.short(x)), inplace=True)


class ResNet(nn.Module):
    def __init__(self, stages, width, dim):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, cin = [], width
        for s, depth in enumerate(stages):
            for d in range(depth):
                blocks.append(Bottleneck(cin, width * 2**s, 2 if s and d == 0 else 1))
                cin = 4 * width * 2**s
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Sequential(nn.Linear(cin, 2048), nn.ReLU(inplace=True), nn.Linear(2048, dim))

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


class InstanceModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.trunk = ResNet(cfg.stages, cfg.width, cfg.dim)
        self.register_buffer("mean", torch.tensor([123.7, 116.3, 103.5]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([58.4, 57.1, 57.4]).view(1, 3, 1, 1))
        self.register_buffer("bank", F.normalize(torch.randn(cfg.instances, cfg.dim), dim=1))
        self.register_buffer("view_bank", F.normalize(torch.randn(cfg.instances, cfg.dim), dim=1))

    def embed(self, images):
        x = ((images.float() - self.mean) / self.std).contiguous(memory_format=torch.channels_last)
        return F.normalize(self.trunk(x).float(), dim=1)

    def contrast(self, z, positives, bank):
        pick = torch.randint(0, self.cfg.instances, (self.cfg.negatives,), device=z.device)
        pos = (z * positives).sum(1, keepdim=True)
        logits = torch.cat([pos, z @ bank[pick].t()], dim=1) / self.cfg.temperature
        return F.cross_entropy(logits, torch.zeros(len(z), dtype=torch.long, device=z.device))

    def forward(self, a, b, ids):
        za, zb = self.embed(torch.cat([a, b])).chunk(2)
        loss = self.contrast(za, self.view_bank[ids], self.view_bank) + self.contrast(zb, self.bank[ids], self.bank)
        return loss, za.detach(), zb.detach()

    @torch.no_grad()
    def remember(self, ids, za, zb):
        for bank, z in ((self.bank, za), (self.view_bank, zb)):
            m = self.cfg.momentum
            bank[ids] = F.normalize(m * bank[ids] + (1 - m) * z, dim=1)


def gather_rows(t, world):
    out = t.new_empty(world * t.shape[0], *t.shape[1:])
    dist.all_gather_into_tensor(out, t.contiguous())
    return out


class Trainer:
    def __init__(self, args, rank, world, dev):
        self.cfg = cfg = BankConfig.for_device(args.device)
        self.world, self.dev = world, dev
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = True
        with dev:
            self.model = InstanceModel(cfg)
        self.model.trunk.to(memory_format=torch.channels_last)
        self.ddp = DistributedDataParallel(self.model, device_ids=[dev.index] if dev.type == "cuda" else None, **WRAP[args.variant])
        self.opt = torch.optim.SGD(self.model.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=1e-4, foreach=True)
        self.data = cycle(make_loader(cfg, rank, world, dev.type == "cuda"))
        self.loss = torch.zeros((), device=dev)

    def step(self, i):
        a, b, ids = (t.to(self.dev, non_blocking=True) for t in next(self.data))
        with torch.autocast(self.dev.type, dtype=torch.bfloat16):
            loss, za, zb = self.ddp(a, b, ids)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.model.remember(*(gather_rows(t, self.world) for t in (ids, za, zb)))
        self.loss.lerp_(loss.detach(), 0.05)


def parse_args(variants):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def agreed(stop, dev):
    flag = torch.tensor([float(stop)], device=dev)
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag.item())


def drive(args, step, steps, warmup, rank):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps, it = [], warmup
    start = last = time.perf_counter()
    for _ in range(steps):
        step(it)
        it += 1
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and len(laps) % 16 == 0 and agreed(now - start > args.max_seconds, args.device):
            break
    sync()
    total = time.perf_counter() - start
    if rank == 0:
        print(json.dumps({
            "program": PROGRAM, "variant": args.variant, "steps": len(laps),
            "step_ms_mean": round(1e3 * total / len(laps), 3),
            "step_ms_median": round(1e3 * statistics.median(laps), 3),
        }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if cuda:
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for k in range(6):
                step(it)
                it += 1
                if cuda and k == 5:
                    sync()
                prof.step()


def main():
    args = parse_args(["slow", "fixed"])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if args.device == "cuda":
        dev = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(dev)
        dist.init_process_group("nccl", device_id=dev)
    else:
        dev = torch.device("cpu")
        dist.init_process_group("gloo")
    if args.trace:
        args.trace = args.trace[: -len(".json.gz")] + f".rank{rank}.json.gz"
    trainer = Trainer(args, rank, world, dev)
    drive(args, trainer.step, args.steps or (180 if args.device == "cuda" else 3), warmup=6 if args.device == "cuda" else 2, rank=rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
