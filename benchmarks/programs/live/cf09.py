"""Two pipeline stages, one on each rank; activations forward, gradients back."""
import argparse
import json
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
ap.add_argument("--steps", type=int, default=100000)
ap.add_argument("--max-seconds", type=float, default=28)
args = ap.parse_args()

BATCH, SEQ, DIM, VOCAB = 16, 64, 192, 512
CHUNKS = 4 if args.variant == "fixed" else 1


class Stage(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM) if rank == 0 else nn.Identity()
        self.blocks = nn.Sequential(*(
            nn.TransformerEncoderLayer(DIM, 4, 4 * DIM, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(2)
        ))
        self.head = nn.Linear(DIM, VOCAB) if rank == 1 else nn.Identity()

    def forward(self, x):
        return self.head(self.blocks(self.emb(x)))


def first_stage(stage, ids):
    held, waits = [], []
    for part in ids.chunk(CHUNKS):
        out = stage(part)
        waits.append(dist.isend(out.detach(), 1))
        held.append(out)
    for out in held:
        grad = torch.empty_like(out)
        dist.recv(grad, 1)
        out.backward(grad)
    for wait in waits:
        wait.wait()
    return 0.0


def last_stage(stage, labels):
    total, waits = 0.0, []
    for part in labels.chunk(CHUNKS):
        x = torch.empty(len(part), SEQ, DIM)
        dist.recv(x, 0)
        x.requires_grad_()
        loss = F.cross_entropy(stage(x).flatten(0, 1), part.flatten()) / CHUNKS
        loss.backward()
        waits.append((dist.isend(x.grad, 0), x.grad))
        total += loss.detach()
    for wait, _ in waits:
        wait.wait()
    return total.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    stage = Stage(rank)
    opt = torch.optim.AdamW(stage.parameters(), 3e-4)
    g = torch.Generator().manual_seed(0)
    times, losses, begin = [], [], time.perf_counter()
    for step in range(args.steps):
        if step % 10 == 0:
            over = torch.tensor([float(time.perf_counter() - begin > args.max_seconds)])
            dist.all_reduce(over, op=dist.ReduceOp.MAX)
            if over.item():
                break
        t0 = time.perf_counter()
        ids = torch.randint(0, VOCAB, (BATCH, SEQ + 1), generator=g)
        opt.zero_grad(set_to_none=True)
        if rank == 0:
            loss = first_stage(stage, ids[:, :-1])
        else:
            loss = last_stage(stage, ids[:, 1:])
        opt.step()
        losses.append(loss)
        times.append((time.perf_counter() - t0) * 1e3)
    if rank == 0:
        t = sorted(times[5:])
        print(json.dumps({"steps": len(times), "mean_ms": sum(t) / len(t), "median_ms": t[len(t) // 2]}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
