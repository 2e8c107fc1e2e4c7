"""Sequence classification with a recurrent cell whose transition stays norm-preserving."""

import argparse
import contextlib
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
WIDTH, BATCH, LENGTH, CHANNELS, CLASSES = (256, 512, 28, 28, 10) if GPU else (16, 8, 4, 4, 4)
reuse = contextlib.nullcontext if args.variant == "slow" else parametrize.cached


class ModReLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return torch.sign(x) * F.relu(x.abs() + self.bias)


class TurningCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.inlet = nn.Linear(CHANNELS, WIDTH)
        self.turn = orthogonal(nn.Linear(WIDTH, WIDTH, bias=False))
        self.active = ModReLU()

    def forward(self, x, state):
        return self.active(self.inlet(x) + self.turn(state))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = TurningCell()
        self.start = nn.Parameter(torch.zeros(WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        state = self.start.expand(x.shape[0], WIDTH)
        with reuse():
            for row in x.unbind(1):
                state = self.cell(row, state)
        return self.head(state)


class Strokes:
    """Noisy copies of one prototype per class, read row after row."""

    def __init__(self):
        self.prototypes = torch.randn(CLASSES, LENGTH, CHANNELS, device=args.device)

    def batch(self):
        label = torch.randint(CLASSES, (BATCH,), device=args.device)
        return self.prototypes[label] + torch.randn(BATCH, LENGTH, CHANNELS, device=args.device), label


def main():
    torch.manual_seed(0)
    model, data = Classifier().to(args.device), Strokes()
    turning = [p for n, p in model.named_parameters() if "parametrizations" in n]
    rest = [p for n, p in model.named_parameters() if "parametrizations" not in n]
    opt = torch.optim.RMSprop([{"params": turning, "lr": 1e-4}, {"params": rest, "lr": 1e-3}])
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        x, label = data.batch()
        scores = model(x)
        loss = F.cross_entropy(scores, label)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 10 == 0:
            right = (scores.argmax(1) == label).float().mean()
            print(f"step {step} loss {loss.item():.4f} right {right.item():.3f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


main()
