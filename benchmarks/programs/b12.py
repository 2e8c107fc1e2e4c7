"""Trains a wide stack and saves its weights every fourth step.

TRUTH: healthy. The save every fourth step copies the weights to pinned buffers on a side stream while the next forward and
backward run, and a thread writes them to a temporary file (a save is passed over while the last one is still being written); the training stream never waits noticeably (variant "without" saves
nothing; the time hardly changes). The step is bound by bf16 GEMMs.
"""
import os
import queue
import tempfile
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Stack(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x), inplace=True)
        return x


def writer(jobs, path, idle):
    while True:
        job = jobs.get()
        if job is None:
            return
        event, views = job
        if event is not None:
            event.synchronize()
        with open(path, "r+b", buffering=0) as f:
            for v in views:
                f.write(v)
        idle.set()


def build(ctx):
    dim, n = ctx.pick(4096, 32), ctx.pick(32768, 8)
    with torch.device(ctx.device):
        net = Stack(dim, 4).to(ctx.device, ctx.half)
    opt = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, fused=True)
    pool = torch.randn(2, n, dim, device=ctx.device, dtype=ctx.half)
    params = list(net.parameters())
    held = [torch.empty(p.shape, dtype=p.dtype, pin_memory=ctx.cuda) for p in params]
    views = [h.view(torch.uint8).numpy() for h in held]
    fd, path = tempfile.mkstemp(prefix="weights")
    os.close(fd)
    jobs, idle = queue.Queue(), threading.Event()
    idle.set()
    thread = threading.Thread(target=writer, args=(jobs, path, idle), daemon=True)
    thread.start()
    side = torch.cuda.Stream() if ctx.cuda else None

    @torch.no_grad()
    def save():
        if not idle.is_set():
            return None
        idle.clear()
        if side is None:
            for h, p in zip(held, params):
                h.copy_(p)
            jobs.put((None, views))
            return None
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for h, p in zip(held, params):
                h.copy_(p, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        jobs.put((event, views))
        return event

    pending = [None]

    def train_step(i):
        net(pool[i % 2]).square().mean().backward()
        if pending[0] is not None:
            torch.cuda.current_stream().wait_event(pending[0])
            pending[0] = None
        opt.step()
        opt.zero_grad()
        if ctx.variant == "healthy" and i % 4 == 3:
            pending[0] = save()

    def close():
        jobs.put(None)
        thread.join()
        os.remove(path)

    return Work(train_step, items=n, close=close)


if __name__ == "__main__":
    main(build, variants=("healthy", "without"), steps=(80, 8), warmup=8)
