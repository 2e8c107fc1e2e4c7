"""Click-through model, data parallel, with a rolling grouped AUC."""
import argparse
import collections
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FEATURES, USERS, ITEMS, BATCH, WINDOW = 512, 200, 60, 384, 32


class Tower(nn.Module):
    def __init__(self, width=1024):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width // 2), nn.ReLU())
        self.head = nn.Linear(width // 2, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(1)


class GroupedAUC:
    def __init__(self, window):
        self.window = collections.deque(maxlen=window)

    def add(self, users, items, scores, labels):
        self.window.append((users.tolist(), items.tolist(), scores.tolist(), labels.tolist()))

    def value(self, column):
        groups = collections.defaultdict(list)
        for entry in self.window:
            for key, score, label in zip(entry[column], entry[2], entry[3]):
                groups[key].append((score, label))
        total = weight = 0.0
        for rows in groups.values():
            rows.sort()
            positives = rank_sum = 0
            for place, (_, label) in enumerate(rows, 1):
                if label > 0.5:
                    positives += 1
                    rank_sum += place
            negatives = len(rows) - positives
            if positives and negatives:
                auc = (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)
                total += auc * len(rows)
                weight += len(rows)
        return total / max(weight, 1.0)


def collect(users, items, scores, labels, rank, world):
    packed = torch.stack([users.float(), items.float(), scores, labels])
    parts = [torch.empty_like(packed) for _ in range(world)] if rank == 0 else None
    dist.gather(packed, parts, dst=0)
    return parts


def batches(rank):
    generator = torch.Generator().manual_seed(100 + rank)
    truth = torch.randn(FEATURES, generator=torch.Generator().manual_seed(1))
    while True:
        x = torch.randn(BATCH, FEATURES, generator=generator)
        users = torch.randint(0, USERS, (BATCH,), generator=generator)
        items = torch.randint(0, ITEMS, (BATCH,), generator=generator)
        y = (x @ truth / 16 + torch.randn(BATCH, generator=generator) > 0.4).float()
        yield x, users, items, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    parser.add_argument("--steps", type=int, default=100000)
    parser.add_argument("--max-seconds", type=float, default=28.0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Tower())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    meter = GroupedAUC(WINDOW * world)
    report_every = 1 if args.variant == "slow" else 25
    source = batches(rank)
    times, total, step, history = [], args.steps, 0, []
    while step < total:
        begin = time.perf_counter()
        x, users, items, y = next(source)
        scores = model(x)
        loss = nn.functional.binary_cross_entropy_with_logits(scores, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        parts = collect(users, items, scores.detach(), y, rank, world)
        if rank == 0:
            for part in parts:
                meter.add(part[0].long(), part[1].long(), part[2], part[3])
            if step % report_every == 0:
                history.append((meter.value(0), meter.value(1)))
        step += 1
        times.append(time.perf_counter() - begin)
        if step == 45:
            plan = torch.tensor([args.max_seconds / statistics.mean(times[32:])])
            dist.broadcast(plan, 0)
            total = min(total, max(55, int(plan.item())))
    if rank == 0:
        used = times[45:] or times
        print(json.dumps({"mean_ms": 1e3 * statistics.mean(used), "median_ms": 1e3 * statistics.median(used),
                          "steps": len(times), "gauc": history[-1]}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
