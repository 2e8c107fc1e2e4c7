"""Two-stage pipeline with micro-batches over send and receive."""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

WIDTH, LAYERS, MICRO, ROWS = 512, 3, 14, 64


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def first_stage(model, generator, pending):
    outputs = []
    for _ in range(MICRO):
        y = model(torch.randn(ROWS, WIDTH, generator=generator))
        pending.append(dist.isend(y.detach(), 1))
        outputs.append(y)
    grad = torch.empty(ROWS, WIDTH)
    for y in outputs:
        dist.recv(grad, 1)
        y.backward(grad)
    return None


def last_stage(model, generator, pending):
    losses = []
    for _ in range(MICRO):
        x = torch.empty(ROWS, WIDTH)
        dist.recv(x, 0)
        x.requires_grad_()
        target = torch.randn(ROWS, WIDTH, generator=generator)
        loss = nn.functional.mse_loss(model(x), target) / MICRO
        loss.backward()
        pending.append(dist.isend(x.grad, 0))
        losses.append(loss.item())
    return sum(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["healthy"], default="healthy")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--max-seconds", type=float, default=28.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(*[Layer() for _ in range(LAYERS)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(10 + rank)
    run = first_stage if rank == 0 else last_stage
    times, total, step = [], args.steps, 0
    while step < total:
        begin = time.perf_counter()
        pending = []
        optimizer.zero_grad(set_to_none=True)
        loss = run(model, generator, pending)
        optimizer.step()
        for work in pending:
            work.wait()
        step += 1
        times.append(time.perf_counter() - begin)
        if step == 15:
            plan = torch.tensor([args.max_seconds / statistics.mean(times[5:])])
            dist.broadcast(plan, 0)
            total = min(total, max(25, int(plan.item())))
    if rank == 0:
        used = times[15:] or times
        print(json.dumps({"mean_ms": 1e3 * statistics.mean(used), "median_ms": 1e3 * statistics.median(used),
                          "steps": len(times)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
