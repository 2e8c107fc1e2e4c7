"""Regression net with optimizer states divided over the ranks, gradients reduced by hand."""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, DEPTH, BATCH = 896, 6, 48


class Gained(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.weight = nn.Parameter(torch.randn(width, width) / width ** 0.5)

    def forward(self, x):
        return x + torch.tanh(nn.functional.linear(x, self.weight)) * self.gain


class Lamb:
    def __init__(self, params, lr=2e-3, betas=(0.9, 0.99), decay=0.01):
        self.params, self.lr, self.betas, self.decay = list(params), lr, betas, decay
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for p, m, v in zip(self.params, self.m, self.v):
            m.lerp_(p.grad, 1 - b1)
            v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
            update = (m / (1 - b1 ** self.t)) / ((v / (1 - b2 ** self.t)).sqrt() + 1e-6)
            update = update + self.decay * p
            ratio = (p.norm() / update.norm().clamp_min(1e-9)).clamp(0.01, 10.0)
            p.add_(update * ratio, alpha=-self.lr)


def by_order(params, world):
    return [i % world for i in range(len(params))]


def by_size(params, world):
    owner, load = [0] * len(params), [0] * world
    for i in sorted(range(len(params)), key=lambda i: -params[i].numel()):
        owner[i] = load.index(min(load))
        load[owner[i]] += params[i].numel()
    return owner


def average_gradients(params, world):
    flat = torch.cat([p.grad.view(-1) for p in params])
    dist.all_reduce(flat)
    flat.div_(world)
    at = 0
    for p in params:
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()


def share_parameters(params, owner):
    for p, source in zip(params, owner):
        dist.broadcast(p.data, source)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--max-seconds", type=float, default=28.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(*[Gained(WIDTH) for _ in range(DEPTH)])
    params = list(model.parameters())
    owner = (by_order if args.variant == "slow" else by_size)(params, world)
    optimizer = Lamb(p for p, o in zip(params, owner) if o == rank)
    generator = torch.Generator().manual_seed(10 + rank)
    times, total, step = [], args.steps, 0
    while step < total:
        begin = time.perf_counter()
        x = torch.randn(BATCH, WIDTH, generator=generator)
        loss = (model(x) - x.roll(1, 1)).square().mean()
        model.zero_grad(set_to_none=True)
        loss.backward()
        average_gradients(params, world)
        optimizer.step()
        share_parameters(params, owner)
        step += 1
        times.append(time.perf_counter() - begin)
        if step == 15:
            plan = torch.tensor([args.max_seconds / statistics.mean(times[5:])])
            dist.broadcast(plan, 0)
            total = min(total, max(25, int(plan.item())))
    if rank == 0:
        used = times[15:] or times
        print(json.dumps({"mean_ms": 1e3 * statistics.mean(used), "median_ms": 1e3 * statistics.median(used),
                          "steps": len(times), "loss": loss.item()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
