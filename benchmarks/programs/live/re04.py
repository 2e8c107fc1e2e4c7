"""Sequence tagger, two ranks, accumulated micro-steps, averaged weights, small checkpoints."""
import argparse
import contextlib
import io
import json
import logging
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("tagger")


class Tagger(nn.Module):
    def __init__(self, vocab=3000, width=192, tags=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 5, padding=2) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.head = nn.Linear(width, tags)
        self.register_buffer("prior", torch.zeros(tags))

    def forward(self, tokens):
        x = self.embed(tokens)
        for conv, norm in zip(self.convs, self.norms):
            x = norm(x + F.gelu(conv(x.transpose(1, 2))).transpose(1, 2))
        return self.head(x) + self.prior


class Sentences:
    def __init__(self, rank, batch, length, vocab, tags):
        self.g = torch.Generator().manual_seed(70 + rank)
        self.batch, self.length, self.vocab, self.tags = batch, length, vocab, tags

    def __iter__(self):
        while True:
            tokens = torch.randint(self.vocab, (self.batch, self.length), generator=self.g)
            yield tokens, (tokens + tokens.roll(1, 1)) % self.tags


class Average:
    def __init__(self, model, every=8, rate=0.05):
        self.shadow = [p.detach().clone() for p in model.parameters()]
        self.every, self.rate = every, rate

    @torch.no_grad()
    def update(self, model, step):
        if step % self.every == 0:
            torch._foreach_lerp_(self.shadow, list(model.parameters()), self.rate)


def tag_totals(loss, logits, target):
    hits = (logits.detach().argmax(-1) == target).sum()
    packed = torch.stack([loss.detach(), hits.float(), torch.tensor(float(target.numel()))])
    dist.all_reduce(packed)
    return packed.tolist()


def save(model, folder, step):
    buf = io.BytesIO()
    torch.save({"head": model.head.state_dict(), "step": step}, buf)
    path = os.path.join(folder, "last.pt")
    with open(path + ".part", "wb") as f:
        f.write(buf.getvalue())
    os.replace(path + ".part", path)


def everyone_done(local):
    flag = torch.tensor([int(local)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def train_step(ddp, opt, stream, micro):
    opt.zero_grad(set_to_none=True)
    for at in range(micro):
        tokens, target = next(stream)
        with contextlib.nullcontext() if at == micro - 1 else ddp.no_sync():
            logits = ddp(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
            (loss / micro).backward()
    norm = nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
    opt.step()
    return tag_totals(loss, logits, target), float(norm)


def run(args, rank, folder):
    torch.manual_seed(0)
    model = Tagger()
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    average = Average(model)
    stream = iter(Sentences(rank, args.batch, args.length, 3000, 24))
    times, seen = [], []
    dist.barrier()
    began = time.perf_counter()
    for step in range(args.steps):
        t0 = time.perf_counter()
        totals, norm = train_step(ddp, opt, stream, args.micro)
        average.update(model, step)
        seen.append(totals[0] / dist.get_world_size())
        if step % 10 == 9:
            notes = [None] * dist.get_world_size()
            dist.all_gather_object(notes, {"rank": rank, "norm": norm})
            log.info("step %d loss %.4f %s", step, seen[-1], notes)
        if step % 20 == 19:
            if rank == 0:
                save(model, folder, step)
            dist.barrier()
        times.append((time.perf_counter() - t0) * 1e3)
        if everyone_done(time.perf_counter() - began > args.max_seconds):
            break
    return times, seen[-1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["healthy"], default="healthy")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=20)
    ap.add_argument("--batch", type=int, default=12)
    ap.add_argument("--length", type=int, default=96)
    ap.add_argument("--micro", type=int, default=4)
    args = ap.parse_args()
    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as folder:
        times, loss = run(args, rank, folder)
    if rank == 0:
        kept = times[2:] or times
        print(json.dumps({"case": "re04", "variant": args.variant, "steps": len(times), "loss": round(loss, 4),
                          "mean_step_ms": round(statistics.fmean(kept), 2),
                          "median_step_ms": round(statistics.median(kept), 2)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
