"""Denoising autoencoder on tabular rows, trained with a Kronecker-factored optimizer."""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

COLUMNS, WIDTH, BATCH = 224, 224, 4096


class Shampoo(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.9, decay=0.95, eps=1e-4, refresh=1):
        super().__init__(params, dict(lr=lr, momentum=momentum, decay=decay, eps=eps, refresh=refresh))

    @staticmethod
    def inverse_root(stat, eps, order):
        scale = stat.diagonal().mean()
        values, vectors = torch.linalg.eigh(stat / scale)
        values = (values.clamp_min(0) + eps).pow(-1.0 / order)
        return (vectors * values) @ vectors.T * scale.pow(-1.0 / order)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad
                if g is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["buf"] = torch.zeros_like(p)
                    state["stats"] = [torch.eye(n) * 1e-6 for n in g.shape] if g.dim() == 2 else []
                    state["roots"] = [torch.eye(n) for n in g.shape] if g.dim() == 2 else []
                if g.dim() == 2:
                    left, right = state["stats"]
                    left.mul_(group["decay"]).addmm_(g, g.T, alpha=1 - group["decay"])
                    right.mul_(group["decay"]).addmm_(g.T, g, alpha=1 - group["decay"])
                    if state["step"] % group["refresh"] == 0:
                        state["roots"] = [self.inverse_root(s, group["eps"], 4) for s in state["stats"]]
                    norm = g.norm()
                    g = state["roots"][0] @ g @ state["roots"][1]
                    g = g * (norm / g.norm().clamp_min(1e-12))
                state["buf"].mul_(group["momentum"]).add_(g)
                p.add_(state["buf"], alpha=-group["lr"])
                state["step"] += 1


class Autoencoder(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.inp = nn.Linear(COLUMNS, WIDTH)
        self.up = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(depth))
        self.mid = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(depth))
        self.out = nn.Linear(WIDTH, COLUMNS)

    def forward(self, x):
        x = self.inp(x)
        for up, mid in zip(self.up, self.mid):
            x = x + mid(F.relu(up(x)))
        return self.out(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=18)
    a = ap.parse_args()
    torch.manual_seed(0)
    mix = torch.randn(COLUMNS, COLUMNS) / COLUMNS**0.5
    rows = torch.randn(16 * BATCH, COLUMNS) @ mix
    net = Autoencoder(depth=1)
    opt = Shampoo(net.parameters(), refresh=20 if a.variant == "fixed" else 1)
    times = []
    began = time.perf_counter()
    for i in range(a.steps):
        start = time.perf_counter()
        x = rows[(i % 16) * BATCH : (i % 16 + 1) * BATCH]
        noisy = x * (torch.rand_like(x) > 0.15)
        loss = F.mse_loss(net(noisy), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        times.append(time.perf_counter() - start)
        if time.perf_counter() - began > a.max_seconds:
            break
    t = times[2:] if len(times) > 4 else times
    print(json.dumps({"steps": len(times), "mean_step_ms": 1e3 * statistics.mean(t), "median_step_ms": 1e3 * statistics.median(t),
                      "loss": loss.item()}))


if __name__ == "__main__":
    main()
