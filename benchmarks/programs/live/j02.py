"""Tuning low-rank adapters on a frozen residual network under mixed precision."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.amp import custom_bwd, custom_fwd

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
DIM, DEPTH, RANK, TOKENS, CLASSES = (4096, 4, 16, 8192, 1000) if GPU else (64, 2, 4, 32, 10)


class FrozenProduct(torch.autograd.Function):
    """x W^T for a weight that never trains: nothing but the weight is kept for backward."""

    @staticmethod
    @custom_fwd(device_type=args.device, cast_inputs=torch.float32)
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x @ weight.t()

    @staticmethod
    @custom_bwd(device_type=args.device)
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return grad @ weight, None


class FrozenProductAmbient(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type=args.device)
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x @ weight.t()

    @staticmethod
    @custom_bwd(device_type=args.device)
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return grad @ weight, None


product = FrozenProduct.apply if args.variant == "slow" else FrozenProductAmbient.apply


class AdaptedLinear(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("weight", torch.randn(dim, dim) * dim**-0.5)
        self.down = nn.Linear(dim, RANK, bias=False)
        self.up = nn.Linear(RANK, dim, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return product(x, self.weight) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.first, self.second = AdaptedLinear(DIM), AdaptedLinear(DIM)

    def forward(self, x):
        return x + self.second(F.gelu(self.first(self.norm(x)))).to(x.dtype)


def main():
    torch.manual_seed(0)
    with torch.device(args.device):
        model = nn.Sequential(*[Block() for _ in range(DEPTH)], nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES))
    model[-1].requires_grad_(False)
    tuned = [p for p in model.parameters() if p.requires_grad]
    print(f"{sum(p.numel() for p in tuned)} of {sum(p.numel() for p in model.parameters())} weights train")
    opt = torch.optim.AdamW(tuned, lr=2e-4)
    bank = torch.randn(4 * TOKENS, DIM, device=args.device, dtype=torch.bfloat16)
    labels = torch.randint(CLASSES, (4 * TOKENS,), device=args.device)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        rows = torch.randint(4 * TOKENS, (TOKENS,), device=args.device)
        with torch.autocast(args.device, dtype=torch.bfloat16):
            scores = model(bank[rows])
            loss = F.cross_entropy(scores, labels[rows])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


main()
