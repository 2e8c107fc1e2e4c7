"""Trains a text encoder while a second thread of the process keeps a summary of the metrics.

TRUTH: lock contention: the background thread (`Summary.run`, pure Python, awake every ms and busy for about 2 ms each time) holds
the interpreter lock, so the training thread waits for the lock again and again between launches; the device idles and every
Python-level operation looks slow at random places. Fix: let the thread wake rarely (here every 0.5 s), or do the work in another
process.
"""
import threading
import time

import torch
import torch.nn.functional as F

from common import HostWork, Work, main
from nets import TextEncoder


class Summary(threading.Thread):
    def __init__(self, pause, ms):
        super().__init__(daemon=True)
        self.pause, self.table, self.going = pause, HostWork(ms), True

    def run(self):
        while self.going:
            time.sleep(self.pause)
            self.table()


def build(ctx):
    depth, t, n = ctx.pick(12, 2), ctx.pick(128, 16), ctx.pick(64, 4)
    net = TextEncoder(ctx.pick(16000, 200), ctx.pick(512, 32), depth, 8 if not ctx.tiny else 4, max_len=t).to(ctx.device, ctx.half)
    opt = torch.optim.AdamW(net.parameters(), lr=3e-5, fused=True)
    ids = torch.randint(0, net.word.num_embeddings, (4, n, t), device=ctx.device)
    label = torch.randint(0, 2, (4, n), device=ctx.device)
    side = Summary(0.001 if ctx.slow else 0.5, 2.0)
    side.start()

    def train_step(i):
        F.cross_entropy(net(ids[i % 4]).float(), label[i % 4]).backward()
        opt.step()
        opt.zero_grad()

    def close():
        side.going = False
        side.join()

    return Work(train_step, items=n, close=close)


if __name__ == "__main__":
    main(build, steps=(60, 6), warmup=6)
