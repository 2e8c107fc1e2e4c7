"""Two ranks under torchrun: the second one prepares its batches slowly."""

import sys

import torch
import torch.distributed as dist

SLOW = "prepare"
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

torch.set_num_threads(1)


def prepare(batch):
    """Row by row."""
    return torch.stack([row.roll(int(row[0])) * 2 for row in batch])


def main():
    """Train."""
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(int(sys.argv[1])):
        batch = torch.rand(256, 64)
        if dist.get_rank() == 1:
            for _ in range(4):
                batch = prepare(batch)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
