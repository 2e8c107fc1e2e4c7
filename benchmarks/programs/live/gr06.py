"""Tensor-parallel decoder: DTensor plans, vocabulary-sharded loss, tokens handed out by rank 0."""
import argparse
import gc
import io
import json
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module)

GPU = torch.cuda.is_available()
D, HEAD, DEPTH, VOCAB, B, T = (8192, 128, 3, 8192, 4, 1024) if GPU else (32, 8, 2, 64, 2, 16)
DTYPE = torch.bfloat16 if GPU else torch.float32


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv = nn.Linear(D, 3 * D, bias=False)
        self.out = nn.Linear(D, D, bias=False)
        self.up, self.down = nn.Linear(D, 4 * D, bias=False), nn.Linear(4 * D, D, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, -1, 3, HEAD).permute(3, 0, 2, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, D)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def shard(model, mesh):
    for layer in model.layers:
        parallelize_module(layer, mesh, {
            "qkv": ColwiseParallel(), "out": RowwiseParallel(),
            "up": ColwiseParallel(), "down": RowwiseParallel()})
    parallelize_module(model, mesh, {
        "tok": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    return model


class Saver:
    """Writes the small norm weights from a thread every so often."""

    def __init__(self, model, rank):
        self.parts = {n: p for n, p in model.named_parameters() if ".n" in n or n.startswith("norm")}
        self.path = os.path.join(tempfile.mkdtemp(), "norms.pt") if rank == 0 else None
        self.thread = None

    def save(self):
        if self.path is None:
            return
        if self.thread is not None:
            self.thread.join()
        host = {n: p.detach().cpu() for n, p in self.parts.items()}
        self.thread = threading.Thread(target=self._write, args=(host,))
        self.thread.start()

    def _write(self, host):
        buf = io.BytesIO()
        torch.save(host, buf)
        with open(self.path, "wb") as f:
            f.write(buf.getvalue())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["healthy"], default="healthy")
    ap.add_argument("--steps", type=int, default=3000)
    ap.add_argument("--max-seconds", type=float, default=26.0)
    args = ap.parse_args()
    dev = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")
    if GPU:
        torch.cuda.set_device(dev)
    dist.init_process_group("nccl" if GPU else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(dev.type, (world,))
    torch.manual_seed(2)
    with torch.device(dev):
        torch.set_default_dtype(DTYPE)
        model = shard(Decoder(), mesh)
        torch.set_default_dtype(torch.float32)
    ps = list(model.parameters())
    opt = torch.optim.AdamW([{"params": [p for p in ps if isinstance(p, DTensor)]},
                             {"params": [p for p in ps if not isinstance(p, DTensor)]}], lr=1e-4, fused=True)
    saver = Saver(model, rank)
    log = open(os.devnull if rank else os.path.join(tempfile.mkdtemp(), "log.jsonl"), "w")
    gen = torch.Generator(device=dev).manual_seed(60)
    skip = 6 if args.steps > 20 else 1
    marks, begin = [], time.perf_counter()
    ids = torch.empty(B, T + 1, dtype=torch.long, device=dev)
    for step in range(args.steps):
        if rank == 0:
            ids.random_(VOCAB, generator=gen)
        dist.broadcast(ids, 0)
        with loss_parallel():
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        value = loss.to_local().item() if hasattr(loss, "to_local") else loss.item()
        log.write(json.dumps({"step": step, "loss": value, "rank": rank, "t": time.time()}) + "\n")
        log.flush()
        dist.barrier()
        if step % 100 == 99:
            saver.save()
            gc.collect()
        marks.append(time.perf_counter())
        flag = torch.tensor([int(marks[-1] - begin > args.max_seconds)], device=dev)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        if flag.item():
            break
    if saver.thread is not None:
        saver.thread.join()
    d = sorted(1e3 * (b - a) for a, b in zip(marks[skip - 1:], marks[skip:]))
    if rank == 0:
        print(json.dumps({"variant": args.variant, "steps": len(marks), "loss": round(value, 3),
                          "mean_ms": round(sum(d) / len(d), 3), "median_ms": round(d[len(d) // 2], 3)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
