"""Residual net with stochastic depth, data parallel, metrics and checkpoints."""
import argparse
import copy
import json
import statistics
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, DEPTH, BATCH, CLASSES = 512, 4, 768, 40


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Residual() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, CLASSES)
        self.rng = torch.Generator().manual_seed(3)

    def forward(self, x):
        skipped = int(torch.randint(0, DEPTH, (1,), generator=self.rng))
        for number, layer in enumerate(self.layers):
            if number != skipped:
                x = layer(x)
        return self.head(x)


def save(state, folder, step):
    torch.save(state, f"{folder}/{step % 2}.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["healthy"], default="healthy")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--max-seconds", type=float, default=28.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Net(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    generator = torch.Generator().manual_seed(10 + rank)
    pool = torch.randn(16384, WIDTH, generator=generator)
    truth = torch.randn(WIDTH, CLASSES, generator=torch.Generator().manual_seed(2))
    folder = tempfile.mkdtemp()
    log = open(f"{folder}/log{rank}.jsonl", "w")
    times, total, step = [], args.steps, 0
    while step < total:
        begin = time.perf_counter()
        x = pool[torch.randint(0, len(pool), (BATCH,), generator=generator)]
        y = (x @ truth).argmax(1)
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        mine = torch.tensor([loss.item(), (logits.argmax(1) == y).float().mean().item()])
        parts = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(parts, mine)
        dist.barrier()
        if rank == 0:
            log.write(json.dumps({"step": step, "loss": [p[0].item() for p in parts]}) + "\n")
            log.flush()
            if step % 50 == 49:
                state = copy.deepcopy(model.module.state_dict())
                threading.Thread(target=save, args=(state, folder, step)).start()
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
