"""Differentially private training of a tabular classifier (clipped gradients plus noise)."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)

    def forward(self, x):
        return x + self.outer(F.gelu(self.inner(self.norm(x))))


class TabularNet(nn.Module):
    def __init__(self, features, width, depth, classes):
        super().__init__()
        self.stem = nn.Linear(features, width)
        self.blocks = nn.Sequential(*[ResidualBlock(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.blocks(F.gelu(self.stem(x))))


class PrivateTrainer:
    def __init__(self, model, clip, sigma, lr):
        self.model, self.clip, self.sigma = model, clip, sigma
        self.params = dict(model.named_parameters())
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, foreach=True)

    def clipped_sum(self, x, y):
        names = list(self.params)
        total = [torch.zeros_like(p) for p in self.params.values()]
        loss_sum = torch.zeros((), device=x.device)
        for xi, yi in zip(x.split(1), y.split(1)):
            loss = F.cross_entropy(self.model(xi), yi)
            grads = torch.autograd.grad(loss, list(self.params.values()))
            norm = torch.stack(torch._foreach_norm(grads)).norm()
            scale = (self.clip / (norm + 1e-6)).clamp(max=1.0)
            torch._foreach_add_(total, torch._foreach_mul(grads, scale))
            loss_sum += loss.detach()
        return dict(zip(names, total)), loss_sum / len(x)

    def step(self, x, y):
        total, loss = self.clipped_sum(x, y)
        for name, p in self.params.items():
            noise = torch.randn_like(p) * (self.sigma * self.clip)
            p.grad = (total[name] + noise) / len(x)
        self.opt.step()
        return loss


class MappedTrainer(PrivateTrainer):
    def clipped_sum(self, x, y):
        def objective(params, xi, yi):
            out = functional_call(self.model, params, (xi[None],))
            loss = F.cross_entropy(out, yi[None])
            return loss, loss

        frozen = {k: v.detach() for k, v in self.params.items()}
        each, losses = vmap(grad(objective, has_aux=True), in_dims=(None, 0, 0))(frozen, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
        scale = (self.clip / (norms + 1e-6)).clamp(max=1.0)
        total = {k: torch.tensordot(scale, g, dims=1) for k, g in each.items()}
        return total, losses.mean()


def patients(rows, features, classes, device):
    """A synthetic cohort with a nonlinear rule for the label."""
    gen = torch.Generator(device=device).manual_seed(11)
    x = torch.randn(rows, features, device=device, generator=gen)
    rule = torch.randn(features, classes, device=device, generator=gen)
    return x, (torch.tanh(x) @ rule).argmax(1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--device", default="cuda")
    p.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    p.add_argument("--steps", type=int, default=90)
    p.add_argument("--max-seconds", type=float, default=16)
    a = p.parse_args()
    torch.manual_seed(4)
    gpu = a.device == "cuda"
    features, width, depth, classes, batch = (256, 512, 4, 20, 64) if gpu else (16, 32, 2, 4, 6)
    x, y = patients(20000 if gpu else 200, features, classes, a.device)
    model = TabularNet(features, width, depth, classes).to(a.device)
    kind = PrivateTrainer if a.variant == "slow" else MappedTrainer
    trainer = kind(model, clip=1.0, sigma=0.4, lr=0.05)
    begin = time.perf_counter()
    done = 0
    while done < a.steps and time.perf_counter() - begin < a.max_seconds:
        rows = torch.randint(len(x), (batch,), device=a.device)
        loss = trainer.step(x[rows], y[rows])
        done += 1
        if done % 15 == 0:
            print(f"step {done} loss {loss.item():.4f}", flush=True)
    last = loss.item()
    took = time.perf_counter() - begin
    print(f"done steps={done} ms_per_step={1e3 * took / done:.2f} loss={last:.5f}")


if __name__ == "__main__":
    main()
