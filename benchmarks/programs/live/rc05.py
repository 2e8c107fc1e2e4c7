"""Recommender whose embedding table is kept by rank 0 and whose tower is averaged."""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

ITEMS, DIM, FIELDS, BATCH = 60000, 64, 8, 192
SERVER = 0


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(DIM * FIELDS, 768), nn.ReLU(), nn.Linear(768, 384), nn.ReLU(),
                                 nn.Linear(384, 1))

    def forward(self, e):
        return self.net(e.flatten(1)).squeeze(1)


class Table:
    def __init__(self, rank, world, lr=0.05):
        self.weight = torch.randn(ITEMS, DIM) * 0.05
        self.state = torch.full((ITEMS, 1), 1e-3)
        self.rank, self.world, self.lr = rank, world, lr

    def lookup(self, ids):
        self.rows, place = ids.unique(return_inverse=True)
        self.leaf = self.weight[self.rows].requires_grad_()
        return self.leaf[place]

    def apply(self, rows, grad):
        self.state[rows] += grad.square().mean(1, keepdim=True)
        self.weight[rows] -= self.lr * grad / self.state[rows].sqrt()

    def push_pull(self):
        raise NotImplementedError


class FullTable(Table):
    def push_pull(self):
        grad = torch.zeros_like(self.weight)
        grad[self.rows] = self.leaf.grad
        if self.rank != SERVER:
            dist.send(grad, SERVER)
            dist.recv(self.weight, SERVER)
            return
        incoming = torch.empty_like(grad)
        for other in range(1, self.world):
            dist.recv(incoming, other)
            grad += incoming
        rows = grad.abs().sum(1).nonzero().squeeze(1)
        self.apply(rows, grad[rows])
        for other in range(1, self.world):
            dist.send(self.weight, other)


class RowTable(Table):
    def push_pull(self):
        if self.rank != SERVER:
            dist.send(torch.tensor([len(self.rows)]), SERVER)
            dist.send(self.rows, SERVER)
            dist.send(self.leaf.grad, SERVER)
            count = torch.zeros(1, dtype=torch.long)
            dist.recv(count, SERVER)
            rows, values = torch.empty(int(count), dtype=torch.long), torch.empty(int(count), DIM)
            dist.recv(rows, SERVER)
            dist.recv(values, SERVER)
            self.weight[rows] = values
            return
        keys, grads = [self.rows], [self.leaf.grad]
        for other in range(1, self.world):
            count = torch.zeros(1, dtype=torch.long)
            dist.recv(count, other)
            keys.append(torch.empty(int(count), dtype=torch.long))
            grads.append(torch.empty(int(count), DIM))
            dist.recv(keys[-1], other)
            dist.recv(grads[-1], other)
        rows, place = torch.cat(keys).unique(return_inverse=True)
        grad = torch.zeros(len(rows), DIM).index_add_(0, place, torch.cat(grads))
        self.apply(rows, grad)
        for other in range(1, self.world):
            dist.send(torch.tensor([len(rows)]), other)
            dist.send(rows, other)
            dist.send(self.weight[rows], other)


def average(model, world):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.view(-1) for g in grads])
    dist.all_reduce(flat)
    for g, part in zip(grads, flat.div_(world).split([g.numel() for g in grads])):
        g.copy_(part.view_as(g))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--max-seconds", type=float, default=28.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    table = (FullTable if args.variant == "slow" else RowTable)(rank, world)
    tower = Tower()
    optimizer = torch.optim.Adam(tower.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(10 + rank)
    times, total, step = [], args.steps, 0
    while step < total:
        begin = time.perf_counter()
        ids = (torch.rand(BATCH, FIELDS, generator=generator).pow(3) * ITEMS).long()
        labels = (ids.sum(1) % 3 == 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(tower(table.lookup(ids)), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        average(tower, world)
        optimizer.step()
        table.push_pull()
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
