"""Masked autoencoding of sensor sequences with a staged transformer."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--max-seconds", type=float, default=14)
args = parser.parse_args()

GPU = args.device == "cuda"
DIM, STAGES, PER_STAGE, HEADS, BATCH, SEQ, CHANNELS = (
    (2048, 3, 4, 16, 8, 2048, 64) if GPU else (32, 2, 2, 2, 2, 16, 8)
)
DTYPE = torch.bfloat16 if GPU else torch.float32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Stage(nn.Module):
    def __init__(self, saving):
        super().__init__()
        self.saving = saving
        self.blocks = nn.ModuleList([Block() for _ in range(PER_STAGE)])
        self.shift = nn.Parameter(torch.zeros(DIM))

    def forward(self, x):
        for block in self.blocks:
            if self.saving and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return x + self.shift


class SensorModel(nn.Module):
    def __init__(self, saving):
        super().__init__()
        self.saving = saving
        self.stem = nn.Linear(CHANNELS, DIM)
        self.pos = nn.Parameter(torch.zeros(SEQ, DIM))
        self.hidden = nn.Parameter(torch.zeros(DIM))
        self.stages = nn.ModuleList([Stage(saving) for _ in range(STAGES)])
        self.head = nn.Linear(DIM, CHANNELS)

    def forward(self, signal, hide):
        x = torch.where(hide[..., None], self.hidden, self.stem(signal)) + self.pos
        for stage in self.stages:
            if self.saving and self.training:
                x = checkpoint(stage, x, use_reentrant=False)
            else:
                x = stage(x)
        return self.head(x)


def recordings(seed):
    """Sums of two sines per channel plus measurement noise."""
    gen = torch.Generator(device=args.device).manual_seed(seed)
    t = torch.arange(SEQ, device=args.device)[None, :, None] / 50.0
    while True:
        freq = torch.rand(2, BATCH, 1, CHANNELS, device=args.device, generator=gen) * 3
        noise = torch.randn(BATCH, SEQ, CHANNELS, device=args.device, generator=gen)
        signal = torch.sin(freq[0] * t) + torch.sin(freq[1] * t) + 0.1 * noise
        hide = torch.rand(BATCH, SEQ, device=args.device, generator=gen) < 0.5
        yield signal.to(DTYPE), hide


def main():
    torch.manual_seed(0)
    model = SensorModel(saving=args.variant == "slow").to(args.device, DTYPE).train()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=GPU)
    begin = time.perf_counter()
    for step, (signal, hide) in enumerate(recordings(4), 1):
        error = (model(signal, hide) - signal).float().square().mean(-1)
        loss = (error * hide).sum() / hide.sum()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step >= args.steps or time.perf_counter() - begin > args.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - begin
    peak = torch.cuda.max_memory_allocated() / 2**30 if GPU else 0.0
    print(f"peak memory {peak:.1f} GiB")
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


if __name__ == "__main__":
    main()
