"""Click prediction from a table of past impressions."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--max-seconds", type=float, default=20)
args = parser.parse_args()

GPU = args.device.startswith("cuda")
ROWS, BATCH, WORKERS = (1_500_000, 16384, 4) if GPU else (20_000, 256, 1)
FIELDS, NUMBERS, VALUES, WIDTH = (26, 13, 50_000, 32) if GPU else (6, 4, 100, 8)
HIDDEN = 1024 if GPU else 32
WARM = 5


def sync():
    if GPU:
        torch.cuda.synchronize()


class Impressions(Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(1)
        self.fields = torch.randint(VALUES, (ROWS, FIELDS), generator=draw, dtype=torch.int32)
        self.numbers = torch.rand(ROWS, NUMBERS, generator=draw)
        self.clicks = (torch.rand(ROWS, generator=draw) < 0.1).float()

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return self.fields[index], self.numbers[index], self.clicks[index]


def make_loader(table):
    common = dict(num_workers=WORKERS, pin_memory=GPU, persistent_workers=True, prefetch_factor=2)
    if args.variant == "slow":
        return DataLoader(table, batch_size=BATCH, shuffle=True, drop_last=True, **common)
    groups = BatchSampler(RandomSampler(table), BATCH, drop_last=True)
    return DataLoader(table, sampler=groups, batch_size=None, **common)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(FIELDS * VALUES, WIDTH)
        self.register_buffer("offset", torch.arange(FIELDS) * VALUES)
        size = FIELDS * WIDTH + NUMBERS
        self.body = nn.Sequential(
            nn.Linear(size, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )

    def forward(self, fields, numbers):
        found = self.table(fields + self.offset).flatten(1)
        return self.body(torch.cat([found, numbers], dim=1)).squeeze(1)


class Training:
    def __init__(self):
        self.model = Tower().to(args.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.total = torch.zeros((), device=args.device)

    def step(self, batch):
        fields, numbers, clicks = (part.to(args.device, non_blocking=True) for part in batch)
        loss = F.binary_cross_entropy_with_logits(self.model(fields, numbers), clicks)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.total += loss.detach()


def endless(loader):
    while True:
        yield from loader


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    source = endless(make_loader(Impressions()))
    training = Training()
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        training.step(next(source))
        if step % 50 == 0:
            print(f"step {step} mean loss {training.total.item() / step:.4f}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


if __name__ == "__main__":
    main()
