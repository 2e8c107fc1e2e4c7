"""Fitting an energy model and its forces, with a penalty that keeps it Lipschitz-bounded."""

import argparse
import time

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
ATOMS, WIDTH, DEPTH, BATCH = (40, 256, 4, 8192) if GPU else (4, 32, 3, 16)
BOUND = 1.5


class EnergyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.inlet = nn.Linear(3 * ATOMS, WIDTH)
        self.hidden = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH)])
        self.outlet = nn.Linear(WIDTH, 1)

    def forward(self, x):
        h = F.silu(self.inlet(x))
        for layer in self.hidden:
            h = h + F.silu(layer(h))
        return self.outlet(h).squeeze(-1)


class SlopePenalty:
    """Squared excess of every hidden layer's Lipschitz constant over the bound."""

    def __init__(self, model):
        self.layers = list(model.hidden)

    def slope(self, index):
        return torch.linalg.matrix_norm(self.layers[index].weight, ord=2)

    def __call__(self):
        slopes = torch.stack([self.slope(i) for i in range(len(self.layers))])
        return F.relu(slopes - BOUND).square().sum(), slopes.detach().max()


class IteratedSlopePenalty(SlopePenalty):
    def __init__(self, model):
        super().__init__(model)
        self.vectors = [F.normalize(torch.randn(WIDTH, device=args.device), dim=0) for _ in self.layers]

    def slope(self, index):
        weight, v = self.layers[index].weight, self.vectors[index]
        with torch.no_grad():
            u = F.normalize(weight @ v, dim=0)
            v = F.normalize(weight.T @ u, dim=0)
            self.vectors[index] = v
        return torch.dot(u, weight @ v)


def reference(x):
    """Energies and forces of a soft pair potential along the chain."""
    gap = x[:, 1:] - x[:, :-1]
    dist = gap.square().sum(-1, keepdim=True).add(0.1).sqrt()
    energy = (dist - 1).square().sum((1, 2))
    pull = 2 * (dist - 1) * gap / dist
    force = torch.zeros_like(x)
    force[:, :-1] += pull
    force[:, 1:] -= pull
    return energy, force


def main():
    torch.manual_seed(0)
    model = EnergyModel().to(args.device)
    penalty = (SlopePenalty if args.variant == "slow" else IteratedSlopePenalty)(model)
    opt = torch.optim.Adam(model.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        x = torch.randn(BATCH, ATOMS, 3, device=args.device)
        energy, force = reference(x)
        flat = x.flatten(1).requires_grad_()
        predicted = model(flat)
        (grad,) = torch.autograd.grad(predicted.sum(), flat, create_graph=True)
        fit = F.mse_loss(predicted, energy) / ATOMS + F.mse_loss(-grad, force.flatten(1))
        excess, largest = penalty()
        loss = fit + 0.1 * excess
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} slope {largest.item():.3f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    last = loss.item()
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={last:.5f}")


main()
