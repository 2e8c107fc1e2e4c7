"""Click model trained on entity vectors that a small store process serves over TCP."""

import argparse
import json
import multiprocessing as mp
import queue
import socketserver
import struct
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
import socket

import numpy as np

ROWS, WIDTH, SEGMENTS = 64, 64, 400


class StoreHandler(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            head = self.request.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                return
            (segment,) = struct.unpack("<i", head)
            time.sleep(0.005)
            self.request.sendall(self.server.segments[segment % SEGMENTS])


class StoreServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def serve(ready):
    rng = np.random.default_rng(4)
    with StoreServer(("127.0.0.1", 0), StoreHandler) as server:
        server.segments = [
            rng.standard_normal((ROWS, WIDTH), dtype=np.float32).tobytes() for _ in range(SEGMENTS)
        ]
        ready.put(server.server_address)
        server.serve_forever()


@dataclass
class Limits:
    total: int = 64
    per_host: int = 1
    timeout: float = 5.0


class Connections:
    """Keeps sockets open between requests; hands out at most `total` of them and `per_host` to one address."""

    def __init__(self, limits):
        self.limits = limits
        self.idle, self.guard = {}, threading.Lock()
        self.overall, self.hosts = threading.BoundedSemaphore(limits.total), {}

    def _slots(self, host):
        with self.guard:
            if host not in self.hosts:
                self.hosts[host] = threading.BoundedSemaphore(self.limits.per_host)
                self.idle[host] = deque()
            return self.hosts[host]

    @contextmanager
    def lease(self, host):
        with self._slots(host), self.overall:
            with self.guard:
                sock = self.idle[host].pop() if self.idle[host] else None
            if sock is None:
                sock = socket.create_connection(host, timeout=self.limits.timeout)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                yield sock
            except OSError:
                sock.close()
                raise
            with self.guard:
                self.idle[host].append(sock)


class StoreClient:
    def __init__(self, host, limits, threads):
        self.host, self.connections = host, Connections(limits)
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="fetch")

    def _segment(self, number):
        with self.connections.lease(self.host) as sock:
            sock.sendall(struct.pack("<i", int(number)))
            raw = sock.recv(4 * ROWS * WIDTH, socket.MSG_WAITALL)
        return np.frombuffer(raw, np.float32).reshape(ROWS, WIDTH)

    def segments(self, numbers):
        return np.stack(list(self.pool.map(self._segment, numbers)))


class Feed(threading.Thread):
    """Builds batches ahead of the training loop."""

    def __init__(self, client, per_batch, depth=3, seed=0):
        super().__init__(daemon=True, name="feed")
        self.client, self.per_batch, self.rng = client, per_batch, np.random.default_rng(seed)
        self.ready, self.stop = queue.Queue(depth), threading.Event()

    def run(self):
        truth = np.random.default_rng(9).standard_normal(WIDTH).astype(np.float32)
        while not self.stop.is_set():
            numbers = self.rng.choice(SEGMENTS, self.per_batch, replace=False)
            vectors = self.client.segments(numbers).reshape(-1, WIDTH)
            clicked = (vectors @ truth + self.rng.standard_normal(len(vectors)) > 0).astype(
                np.float32
            )
            while not self.stop.is_set():
                try:
                    self.ready.put((vectors, clicked), timeout=0.2)
                    break
                except queue.Full:
                    continue


def train(client, args):
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(WIDTH, 384),
        nn.ReLU(),
        nn.LayerNorm(384),
        nn.Linear(384, 384),
        nn.ReLU(),
        nn.Linear(384, 1),
    )
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    lossfn = nn.BCEWithLogitsLoss()
    feed = Feed(client, args.segments)
    feed.start()
    times, losses, began = [], [], time.perf_counter()
    for step in range(args.steps):
        t0 = time.perf_counter()
        vectors, clicked = feed.ready.get()
        loss = lossfn(model(torch.from_numpy(vectors)).squeeze(1), torch.from_numpy(clicked))
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        if step >= 6:
            times.append(1e3 * (time.perf_counter() - t0))
        if step % 50 == 0:
            print(f"step {step} loss {losses[-1]:.4f}", flush=True)
        if time.perf_counter() - began > args.max_seconds:
            break
    feed.stop.set()
    feed.join(timeout=5)
    return times, losses


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--max-seconds", type=float, default=60)
    ap.add_argument("--segments", type=int, default=16)
    ap.add_argument("--threads", type=int, default=8)
    args = ap.parse_args()
    ctx = mp.get_context("spawn")
    ready = ctx.Queue()
    store = ctx.Process(target=serve, args=(ready,), daemon=True)
    store.start()
    host = tuple(ready.get(timeout=60))
    limits = Limits() if args.variant == "slow" else Limits(per_host=args.threads)
    times, losses = train(StoreClient(host, limits, args.threads), args)
    store.terminate()
    store.join()
    print(
        json.dumps(
            {
                "variant": args.variant,
                "steps": len(times),
                "loss": round(float(np.mean(losses[-20:])), 4),
                "mean_ms": round(float(np.mean(times)), 3),
                "median_ms": round(float(np.median(times)), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
