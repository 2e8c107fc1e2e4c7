"""Sentence classification; texts come from a file ordered by length."""
import argparse
import json
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

ap = argparse.ArgumentParser()
ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
ap.add_argument("--steps", type=int, default=100000)
ap.add_argument("--max-seconds", type=float, default=28)
args = ap.parse_args()

BATCH, TEXTS, VOCAB = 8, 8000, 4000


def corpus():
    g = torch.Generator().manual_seed(0)
    lengths = (16 + 144 * torch.rand(TEXTS, generator=g) ** 1.5).long().sort().values
    ids = torch.randint(1, VOCAB, (TEXTS, 160), generator=g)
    return ids, lengths, torch.randint(0, 5, (TEXTS,), generator=g)


def shard(n, rank, world):
    if args.variant == "fixed":
        return torch.arange(rank, n, world)
    per = n // world
    return torch.arange(rank * per, (rank + 1) * per)


def batches(mine, lengths, rank):
    g = torch.Generator().manual_seed(7)
    mine = mine[lengths[mine].argsort()]
    groups = mine.split(BATCH)
    while True:
        for i in torch.randperm(len(groups), generator=g).tolist():
            yield groups[i]


class Classifier(nn.Module):
    def __init__(self, dim=192, layers=3):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=0)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, 0.1, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 5)

    def forward(self, ids):
        pad = ids == 0
        h = self.body(self.emb(ids), src_key_padding_mask=pad)
        h = h.masked_fill(pad.unsqueeze(-1), 0).sum(1) / (~pad).sum(1, keepdim=True)
        return self.out(h)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    ids, lengths, labels = corpus()
    model = DDP(Classifier())
    opt = torch.optim.AdamW(model.parameters(), 2e-4)
    feed = batches(shard(TEXTS, rank, world), lengths, rank)
    times, begin, seen = [], time.perf_counter(), 0
    for step in range(args.steps):
        if step % 10 == 0:
            over = torch.tensor([float(time.perf_counter() - begin > args.max_seconds)])
            dist.all_reduce(over, op=dist.ReduceOp.MAX)
            if over.item():
                break
        t0 = time.perf_counter()
        pick = next(feed)
        top = int(lengths[pick].max())
        x = ids[pick, :top].clone()
        x[torch.arange(top) >= lengths[pick].unsqueeze(1)] = 0
        loss = F.cross_entropy(model(x), labels[pick])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        seen += len(pick)
        times.append((time.perf_counter() - t0) * 1e3)
    if rank == 0:
        t = sorted(times[5:])
        print(json.dumps({"steps": len(times), "mean_ms": sum(t) / len(t), "median_ms": t[len(t) // 2]}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
