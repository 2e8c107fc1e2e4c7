"""Instance discrimination on two ranks: ResNet features against two memory banks (torchrun --nproc-per-node 2)."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=None)
    ap.add_argument("--max-seconds", type=float, default=1e9)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    if args.steps is None:
        args.steps = 150 if args.device == "cuda" else 4
    return args


def conv_norm(before, width, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(before, width, kernel, stride=stride, padding=kernel // 2, bias=False),
                         nn.BatchNorm2d(width))


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.reduce = conv_norm(before, width, 1)
        self.mix = conv_norm(width, width, 3, stride)
        self.expand = conv_norm(width, 4 * width, 1)
        self.skip = conv_norm(before, 4 * width, 1, stride) if stride > 1 or before != 4 * width else nn.Identity()

    def forward(self, x):
        y = F.relu(self.reduce(x), inplace=True)
        y = F.relu(self.mix(y), inplace=True)
        return F.relu(self.expand(y) + self.skip(x), inplace=True)


class ResNet(nn.Module):
    def __init__(self, depths, width):
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        layers, before = [], width
        for at, depth in enumerate(depths):
            for n in range(depth):
                layers.append(Bottleneck(before, width << at, 2 if at and n == 0 else 1))
                before = 4 * (width << at)
        self.body = nn.Sequential(*layers)
        self.features = before

    def forward(self, x):
        return self.body(self.stem(x)).mean((2, 3))


class BankedEncoder(nn.Module):
    def __init__(self, backbone, samples, dim, negatives):
        super().__init__()
        self.backbone = backbone
        self.heads = nn.ModuleList(nn.Linear(backbone.features, dim) for _ in range(2))
        self.samples, self.negatives = samples, negatives
        for name in ("bank_a", "bank_b"):
            self.register_buffer(name, torch.empty(samples, dim))

    @torch.no_grad()
    def reset_banks(self, seed):
        gen = torch.Generator(device=self.bank_a.device).manual_seed(seed)
        for bank in (self.bank_a, self.bank_b):
            bank.normal_(generator=gen)
            for part in bank.split(1 << 20):
                part.div_(part.norm(dim=1, keepdim=True))

    def forward(self, images, index):
        h = self.backbone(images)
        feats = [F.normalize(head(h).float(), dim=1) for head in self.heads]
        others = torch.randint(0, self.samples, (images.shape[0], self.negatives), device=images.device)
        others = torch.cat((index.unsqueeze(1), others), dim=1)
        scores = [torch.bmm(bank[others], f.unsqueeze(2)).squeeze(2)
                  for bank, f in zip((self.bank_b, self.bank_a), feats)]
        return feats, scores

    @torch.no_grad()
    def refresh(self, feats, index):
        world = dist.get_world_size()
        whole = torch.cat((feats[0], feats[1]), dim=1).detach()
        rows = [torch.empty_like(whole) for _ in range(world)]
        places = [torch.empty_like(index) for _ in range(world)]
        dist.all_gather(rows, whole)
        dist.all_gather(places, index)
        rows, places = torch.cat(rows), torch.cat(places)
        for bank, fresh in zip((self.bank_a, self.bank_b), rows.chunk(2, dim=1)):
            bank[places] = F.normalize(0.5 * bank[places] + 0.5 * fresh, dim=1)


def wrap_default(model, ids):
    return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)


def wrap_lean(model, ids):
    return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True, broadcast_buffers=False)


class Trainer:
    def __init__(self, device, rank, world, wrap):
        self.device, self.rank, self.world = device, rank, world
        cuda = device.type == "cuda"
        if cuda:
            self.batch, size, self.samples, dim, negatives = 128, 224, 6_000_000, 128, 2048
            backbone = ResNet((3, 4, 6, 3), 64)
        else:
            self.batch, size, self.samples, dim, negatives = 4, 32, 5000, 16, 8
            backbone = ResNet((1, 1, 1, 1), 8)
        model = BankedEncoder(backbone, self.samples, dim, negatives)
        model = model.to(device)
        model.backbone.to(memory_format=torch.channels_last)
        model.reset_banks(4)
        self.inner = model
        self.model = wrap(model, [device.index] if cuda else None)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4, fused=cuda)
        torch.manual_seed(100 + rank)
        self.pool = [torch.randint(0, 256, (self.batch, 3, size, size), dtype=torch.uint8, device=device)
                     .contiguous(memory_format=torch.channels_last) for _ in range(4)]
        self.target = torch.zeros(self.batch, dtype=torch.long, device=device)

    def step(self, i):
        base = (i * self.world + self.rank) * self.batch % (self.samples - self.batch)
        index = torch.arange(base, base + self.batch, device=self.device)
        images = self.pool[i % len(self.pool)].float().div_(127.5).sub_(1.0)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            feats, scores = self.model(images, index)
        loss = sum(F.cross_entropy(s.float() / 0.07, self.target) for s in scores)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.inner.refresh(feats, index)


def main():
    args = parse_args()
    cuda = args.device == "cuda"
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    if cuda:
        torch.cuda.set_device(local)
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo", **({"device_id": device} if cuda else {}))
    world = dist.get_world_size()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    wrap = {"slow": wrap_default, "fixed": wrap_lean}[args.variant]
    trainer = Trainer(device, rank, world, wrap)
    sync = torch.cuda.synchronize if cuda else (lambda: None)

    count = 0
    for _ in range(5):
        trainer.step(count)
        count += 1
    sync()
    begin = time.perf_counter()
    for _ in range(3):
        trainer.step(count)
        count += 1
    sync()
    pace = torch.tensor((time.perf_counter() - begin) / 3, device=device)
    dist.all_reduce(pace, op=dist.ReduceOp.MAX)
    steps = max(1, min(args.steps, int(args.max_seconds / pace.item())))

    dist.barrier()
    sync()
    marks = [time.perf_counter()]
    for _ in range(steps):
        trainer.step(count)
        count += 1
        marks.append(time.perf_counter())
    sync()
    total = time.perf_counter() - marks[0]
    laps = [b - a for a, b in zip(marks, marks[1:])]
    if rank == 0:
        print(json.dumps({
            "program": os.path.splitext(os.path.basename(__file__))[0],
            "variant": args.variant,
            "steps": len(laps),
            "step_ms_mean": round(1e3 * total / len(laps), 4),
            "step_ms_median": round(1e3 * statistics.median(laps), 4),
        }), flush=True)
    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        path = args.trace if rank == 0 else args.trace.replace(".json.gz", f".rank{rank}.json.gz")
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        with profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                     schedule=schedule(wait=0, warmup=2, active=4, repeat=1),
                     on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
            for _ in range(6):
                trainer.step(count)
                count += 1
                prof.step()
        sync()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
