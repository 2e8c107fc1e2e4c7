"""Momentum-contrast pre-training of a small patch encoder on two ranks."""
import argparse, copy, json, statistics, time
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

DIM, QUEUE, BATCH, PIXELS = 256, 65536, 16, 768


def encoder():
    return nn.Sequential(nn.Linear(PIXELS, 1024), nn.LayerNorm(1024), nn.GELU(), nn.Linear(1024, 512), nn.GELU(), nn.Linear(512, DIM))


class MoCo(nn.Module):
    def __init__(self, momentum=0.99, temperature=0.2):
        super().__init__()
        self.m, self.t = momentum, temperature
        self.query = encoder()
        self.key = copy.deepcopy(self.query)
        for w in self.key.parameters():
            w.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(QUEUE, DIM), dim=1))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def follow(self):
        torch._foreach_lerp_(list(self.key.parameters()), [w.data for w in self.query.parameters()], 1 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        both = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
        dist.all_gather(both, keys)
        keys = torch.cat(both)
        at = int(self.pointer)
        self.queue[at:at + len(keys)] = keys
        self.pointer[0] = (at + len(keys)) % QUEUE

    def forward(self, a, b):
        q = F.normalize(self.query(a), dim=1)
        with torch.no_grad():
            self.follow()
            k = F.normalize(self.key(b), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.t()
        return torch.cat([positive, negative], 1) / self.t, k


def views(seed):
    g = torch.Generator().manual_seed(seed)
    pool = torch.randn(2048, PIXELS, generator=g)
    while True:
        x = pool[torch.randint(0, len(pool), (BATCH,), generator=g)]
        yield x + 0.1 * torch.randn(x.shape, generator=g), x * (torch.rand(x.shape, generator=g) > 0.2)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--max-seconds", type=float, default=30)
    a = p.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    options = {"gradient_as_bucket_view": True}
    if a.variant == "fixed":
        options["forward_sync_buffers"] = False
    model = DDP(MoCo(), **options)
    opt = torch.optim.SGD(model.module.query.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    data, target = views(10 + rank), torch.zeros(BATCH, dtype=torch.long)
    times, start, stop = [], time.perf_counter(), torch.zeros(1)
    for step in range(a.steps):
        t = time.perf_counter()
        one, two = next(data)
        logits, keys = model(one, two)
        loss = F.cross_entropy(logits, target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        model.module.enqueue(keys)
        times.append((time.perf_counter() - t) * 1e3)
        if step % 20 == 19:
            stop.fill_(time.perf_counter() - start > a.max_seconds)
            dist.all_reduce(stop, op=dist.ReduceOp.MAX)
            if stop.item():
                break
    kept = times[3:] or times
    if rank == 0:
        print(json.dumps({"mean_ms": statistics.mean(kept), "median_ms": statistics.median(kept), "steps": len(times), "loss": loss.item()}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
