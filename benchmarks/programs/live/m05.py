"""Forecasting electricity demand with a patch transformer."""

import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--max-seconds", type=float, default=20)
args = parser.parse_args()

ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
if args.variant == "slow":
    ENVIRONMENT["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
os.environ.update(ENVIRONMENT)

import torch
import torch.nn as nn
import torch.nn.functional as F

GPU = args.device.startswith("cuda")
WIDTH, HEADS, LAYERS = (512, 8, 6) if GPU else (32, 4, 2)
BATCH, PATCHES, PATCH, AHEAD = (96, 128, 16, 96) if GPU else (4, 8, 16, 24)
METERS, HOURS, WARM = (200, 20_000, 5) if GPU else (10, 1000, 3)


def sync():
    if GPU:
        torch.cuda.synchronize()


class Demand:
    """Hourly readings with a daily and weekly rhythm, kept on the device."""

    def __init__(self):
        hour = torch.arange(HOURS, dtype=torch.float32)
        phase = torch.rand(METERS, 1) * 6.28
        daily = torch.sin(hour * 6.2832 / 24 + phase)
        weekly = 0.4 * torch.sin(hour * 6.2832 / 168 + 2 * phase)
        self.table = (daily + weekly + 0.1 * torch.randn(METERS, HOURS)).to(args.device)
        self.reach = torch.arange(PATCHES * PATCH + AHEAD, device=args.device)

    def batch(self):
        meter = torch.randint(METERS, (BATCH, 1), device=args.device)
        first = torch.randint(HOURS - len(self.reach), (BATCH, 1), device=args.device)
        window = self.table[meter, first + self.reach]
        return window[:, :-AHEAD], window[:, -AHEAD:]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        rows, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, length, WIDTH)
        x = x + self.out(mixed)
        return x + self.body(self.norm2(x))


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(PATCH, WIDTH)
        self.place = nn.Parameter(torch.randn(PATCHES, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.leave = nn.Linear(WIDTH, AHEAD)

    def forward(self, past):
        level, spread = past.mean(1, keepdim=True), past.std(1, keepdim=True) + 1e-3
        x = ((past - level) / spread).view(len(past), PATCHES, PATCH)
        x = self.blocks(self.enter(x) + self.place)
        return self.leave(x.mean(1)) * spread + level


def train_step(model, optimizer, demand):
    past, future = demand.batch()
    with torch.autocast(args.device.split(":")[0], torch.bfloat16, enabled=GPU):
        loss = F.huber_loss(model(past), future)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.detach()


def main():
    torch.manual_seed(0)
    demand = Demand()
    model = Forecaster().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        loss = train_step(model, optimizer, demand)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
