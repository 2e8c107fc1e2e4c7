"""Sharded training of a sequence classifier with an exponential moving average of the weights for evaluation."""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

D, HEADS, T, BATCH, LAYERS, CLASSES = 384, 6, 64, 3, 4, 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (h.view(b, t, HEADS, -1).transpose(1, 2) for h in self.qkv(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(40, D)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.out = nn.Linear(D, CLASSES)

    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = b(x)
        return self.out(x.mean(1))


class WholeAverage:
    """Rank 0 keeps the averaged weights, ready to be written or evaluated."""

    def __init__(self, model, decay=0.999):
        self.decay, self.values = decay, {}
        self.update(model)

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            full = p.full_tensor()
            if dist.get_rank() == 0:
                if name in self.values:
                    self.values[name].lerp_(full, 1 - self.decay)
                else:
                    self.values[name] = full.clone()


class ShardAverage:
    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.values = {n: p.to_local().detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for name, p in model.named_parameters():
            self.values[name].lerp_(p.to_local(), 1 - self.decay)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=18)
    a = ap.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    net = Classifier()
    for block in net.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=False)
    fully_shard(net, mesh=mesh, reshard_after_forward=False)
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    average = (ShardAverage if a.variant == "fixed" else WholeAverage)(net)
    torch.manual_seed(10 + rank)
    times, done = [], False
    began = last = time.perf_counter()
    while not done:
        x = torch.randn(BATCH, T, 40)
        y = (x.mean((1, 2)) * 40).long().remainder(CLASSES)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.update(net)
        report = torch.tensor([loss.item(), float(time.perf_counter() - began > a.max_seconds)])
        dist.all_reduce(report)
        now = time.perf_counter()
        times.append(now - last)
        last = now
        done = len(times) >= a.steps or report[1].item() > 0
    t = times[3:] if len(times) > 6 else times
    if rank == 0:
        print(json.dumps({"steps": len(times), "mean_step_ms": 1e3 * statistics.mean(t),
                          "median_step_ms": 1e3 * statistics.median(t), "loss": report[0].item() / world}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
