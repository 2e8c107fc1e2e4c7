"""Embedding service: request threads -> batcher -> bf16 text encoder."""
import logging
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass

import torch
import torch.nn as nn

from blocks_e import EncoderLayer, StepTimes, base_parser

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
log = logging.getLogger("embedder")


@dataclass
class ServerConfig:
    clients: int = 24
    max_batch: int = 24
    max_wait_s: float = 0.030
    seq: int = 256
    dim: int = 1024
    heads: int = 16
    layers: int = 8
    vocab: int = 30000


class TextEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.layers = nn.Sequential(*[EncoderLayer(cfg.dim, cfg.heads) for _ in range(cfg.layers)])
        self.norm = nn.LayerNorm(cfg.dim)

    def forward(self, ids):
        return self.norm(self.layers(self.emb(ids))).mean(1)


class Batcher:
    def __init__(self, model, cfg, device):
        self.model, self.cfg, self.device = model, cfg, device
        self.inbox = queue.Queue()
        self.sizes = []

    def submit(self, ids):
        fut = Future()
        self.inbox.put((ids, fut))
        return fut

    def collect(self):
        batch = [self.inbox.get()]
        deadline = time.monotonic() + self.cfg.max_wait_s
        while len(batch) < self.cfg.max_batch:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                batch.append(self.inbox.get(timeout=left))
            except queue.Empty:
                break
        return batch

    @torch.inference_mode()
    def serve_one(self):
        batch = self.collect()
        ids = torch.stack([b[0] for b in batch]).to(self.device)
        out = self.model(ids).float().cpu()
        for row, (_, fut) in zip(out, batch):
            fut.set_result(row)
        self.sizes.append(len(batch))


class Client(threading.Thread):
    def __init__(self, batcher, cfg, seed):
        super().__init__(daemon=True)
        g = torch.Generator().manual_seed(seed)
        self.docs = torch.randint(cfg.vocab, (4, cfg.seq), generator=g)
        self.batcher, self.served = batcher, 0
        self.closing = threading.Event()

    def run(self):
        while not self.closing.is_set():
            vec = self.batcher.submit(self.docs[self.served % 4]).result()
            if vec is None:
                return
            self.served += 1


def main():
    args = base_parser().parse_args()
    cfg = ServerConfig()
    if args.variant == "slow":
        cfg.max_batch = 32
    if args.tiny:
        cfg.clients, cfg.max_batch = 3, 4 if args.variant == "slow" else 3
        cfg.seq, cfg.dim, cfg.heads, cfg.layers, cfg.vocab = 8, 32, 2, 1, 100
    device = torch.device(args.device)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    with device:
        model = TextEncoder(cfg).to(dtype).eval()
    batcher = Batcher(model, cfg, device)
    clients = [Client(batcher, cfg, i) for i in range(cfg.clients)]
    for c in clients:
        c.start()
    warm = 2 if args.tiny else 8
    times = StepTimes(device)
    for i in range(args.steps + warm):
        if i == warm:
            times.begin()
        batcher.serve_one()
        if i >= warm:
            times.tick()
    times.finish()
    for c in clients:
        c.closing.set()
    while any(c.is_alive() for c in clients):
        try:
            batcher.inbox.get(timeout=0.05)[1].set_result(None)
        except queue.Empty:
            pass
    n = len(batcher.sizes)
    log.info("batches %d mean size %.1f served %d", n, sum(batcher.sizes) / n, sum(c.served for c in clients))


if __name__ == "__main__":
    main()
