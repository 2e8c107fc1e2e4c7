"""A hand-written trainer with bf16 working weights and fp32 master weights."""

import argparse
import time
from dataclasses import dataclass

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
WIDTH, LAYERS, HEADS, LENGTH, BATCH = (1024, 6, 16, 512, 32) if GPU else (32, 2, 4, 16, 4)
GENES, WARM = 64, 4


@dataclass(frozen=True)
class TrainingArguments:
    learning_rate: float = 2e-4
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    logging_steps: int = 20
    optimizer_device: str = "cpu" if args.variant == "slow" else args.device


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, length, _ = x.shape
        parts = self.qkv(self.first(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Imputer(nn.Module):
    """Fills in hidden readings of gene panels."""

    def __init__(self):
        super().__init__()
        self.inlet = nn.Linear(GENES, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.outlet = nn.Linear(WIDTH, GENES)

    def forward(self, x):
        return self.outlet(self.blocks(self.inlet(x)))


class MasterWeights:
    """fp32 copies that the optimizer moves; the working weights follow them."""

    def __init__(self, model, options):
        self.working = list(model.parameters())
        place = options.optimizer_device
        pinned = GPU and place == "cpu"
        self.master = []
        for weight in self.working:
            copy = torch.empty(weight.shape, device=place, pin_memory=pinned)
            copy.copy_(weight.detach())
            copy.grad = torch.zeros(weight.shape, device=place, pin_memory=pinned)
            self.master.append(copy)
        self.opt = torch.optim.AdamW(
            self.master, lr=options.learning_rate, weight_decay=options.weight_decay, fused=True
        )

    @torch.no_grad()
    def update(self):
        for weight, copy in zip(self.working, self.master):
            copy.grad.copy_(weight.grad, non_blocking=True)
            weight.grad = None
        if GPU and self.master[0].device.type == "cpu":
            torch.cuda.current_stream().synchronize()
        self.opt.step()
        for weight, copy in zip(self.working, self.master):
            weight.copy_(copy, non_blocking=True)


class Panels:
    def __init__(self):
        self.mix = torch.randn(GENES, GENES, device=args.device) / GENES**0.5

    def batch(self):
        whole = torch.tanh(torch.randn(BATCH, LENGTH, GENES, device=args.device) @ self.mix)
        hidden = torch.rand_like(whole) < 0.3
        return whole.masked_fill(hidden, 0).bfloat16(), whole, hidden


class Trainer:
    def __init__(self, options):
        self.options, self.panels = options, Panels()
        self.model = Imputer().to(args.device, torch.bfloat16)
        self.weights = MasterWeights(self.model, options)

    def training_step(self):
        seen, whole, hidden = self.panels.batch()
        guess = self.model(seen).float()
        loss = ((guess - whole).square() * hidden).sum() / hidden.sum()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.options.max_grad_norm)
        self.weights.update()
        return loss.detach()

    def train(self):
        start = begin = time.perf_counter()
        for step in range(1, args.steps + 1):
            loss = self.training_step()
            if step % self.options.logging_steps == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step == WARM:
                sync()
                start = time.perf_counter()
            if time.perf_counter() - begin > args.max_seconds:
                break
        sync()
        return step, time.perf_counter() - start


def sync():
    if GPU:
        torch.cuda.synchronize()


def main():
    torch.manual_seed(0)
    step, took = Trainer(TrainingArguments()).train()
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
