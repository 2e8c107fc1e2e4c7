"""A scoring service: threads prepare requests and write the answers, one thread runs the model."""
import json
import queue
import threading

import torch
import torch.nn as nn

from blocks_c import Block
from common import Work, main
from util import fit_count


def clean_text(n):
    out = []
    for k in range(n):
        word = f"tok{k * 7919 % 10007}".lower().strip()
        out.append(hash(word) & 1023)
    return out


def build(ctx):
    torch.set_grad_enabled(False)
    d, heads, layers, n, t = ctx.pick((4096, 32, 8, 8, 1024), (32, 2, 1, 2, 16))
    with torch.device(ctx.device):
        emb = nn.Embedding(1024, d, dtype=ctx.half)
        net = nn.Sequential(*[Block(d, heads) for _ in range(layers)]).to(ctx.half).eval()
        head = nn.Linear(d, 16, dtype=ctx.half)
    ready, finished, room = queue.Queue(4), queue.Queue(), threading.Semaphore(3)
    stop, written = threading.Event(), []
    words = fit_count(clean_text, ctx.pick(3.0, 0.3))
    plain = ctx.variant == "without"

    def prepare(seed):
        base = torch.randint(0, 1024, (n, t))
        while not stop.is_set():
            if not plain:
                clean_text(words)
            ids = base.pin_memory() if ctx.cuda else base.clone()
            while not stop.is_set():
                try:
                    ready.put(ids, timeout=0.2)
                    break
                except queue.Full:
                    pass

    def answer():
        while True:
            got = finished.get()
            if got is None:
                return
            scores, event = got
            if event:
                event.synchronize()
            room.release()
            if not plain:
                written.append(len(json.dumps(scores.tolist())))

    threads = [threading.Thread(target=prepare, args=(k,), daemon=True) for k in range(2)] + [threading.Thread(target=answer, daemon=True)]
    for th in threads:
        th.start()

    def serve_one(i):
        ids = ready.get()
        room.acquire()
        x = net(emb(ids.to(ctx.device, non_blocking=True)))
        scores, event = head(x[:, -1]), None
        if ctx.cuda:
            host = torch.empty(scores.shape, dtype=scores.dtype, pin_memory=True)
            scores = host.copy_(scores, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        finished.put((scores, event))

    def close():
        stop.set()
        finished.put(None)
        for th in threads:
            th.join(2)

    return Work(serve_one, items=n, close=close)


if __name__ == "__main__":
    main(build, steps=(200, 6), variants=("healthy", "without"))
