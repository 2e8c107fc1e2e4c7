"""Regression with a wide MLP on CPU, mini-batches picked by a Python generator."""

import argparse
import random
import time

import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(d, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 1)
        )

    def forward(self, x):
        return self.body(x).squeeze(1)


def minibatches(x, y, size, seed):
    r = random.Random(seed)
    ids = list(range(len(x)))
    while True:
        r.shuffle(ids)
        for at in range(0, len(ids) - size + 1, size):
            chosen = []
            for i in ids[at : at + size]:
                chosen.append(i)
            rows = torch.tensor(chosen)
            yield x[rows], y[rows]


def grad_report(net):
    return {name: float(p.grad.norm()) for name, p in net.named_parameters() if p.grad is not None}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(2)
    x = torch.randn(20_000, 256)
    y = (x[:, :8] ** 2).sum(1).sqrt() + 0.1 * torch.randn(len(x))
    net = Net(256, 1536)
    opt = torch.optim.SGD(net.parameters(), lr=0.003, momentum=0.9)
    stream, notes = minibatches(x, y, 2048, 5), []
    cpu, wall, result, begin = [], [], 0.0, time.perf_counter()
    for step in range(args.steps):
        c, w = time.process_time(), time.perf_counter()
        bx, by = next(stream)
        loss = nn.functional.mse_loss(net(bx), by)
        opt.zero_grad()
        loss.backward()
        opt.step()
        notes.append((loss.item(), grad_report(net)))
        result = notes[-1][0]
        cpu.append(time.process_time() - c)
        wall.append(time.perf_counter() - w)
        if len(cpu) % 20 == 0:
            print(len(cpu), f"{result:.6g}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    med = sorted(cpu)[len(cpu) // 2] * 1e3
    print(
        f"done steps={len(cpu)} median_cpu_ms={med:.2f} median_wall_ms={sorted(wall)[len(wall) // 2] * 1e3:.2f} result={result:.6g}"
    )


if __name__ == "__main__":
    main()
