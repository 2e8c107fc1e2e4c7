"""In-process ranking service: two lanes of requests, a dispatcher that batches, one model thread, simulated clients."""
import argparse
import json
import queue
import statistics
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn


@dataclass
class Request:
    user: np.ndarray
    items: np.ndarray
    lane: str
    reply: Future = field(default_factory=Future)
    arrived: float = field(default_factory=time.perf_counter)


class Ranker(nn.Module):
    """Scores candidate items for a user: embeddings, cross attention, and a small tower."""

    def __init__(self, items=20_000, dim=128, blocks=2):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        self.user = nn.Sequential(nn.Linear(64, dim), nn.GELU(), nn.Linear(dim, dim))
        self.attend = nn.ModuleList(nn.MultiheadAttention(dim, 4, batch_first=True) for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(blocks))
        self.tower = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.GELU(), nn.Linear(dim, 1))

    def forward(self, user, items):
        who = self.user(user).unsqueeze(1)
        what = self.items(items) + who
        for attend, norm in zip(self.attend, self.norms):
            mixed, _ = attend(norm(what), norm(what), norm(what), need_weights=False)
            what = what + mixed
        return self.tower(what).squeeze(-1)


class Lanes:
    """Interactive requests go first; bulk ones fill what is left of a batch."""

    def __init__(self, variant: str):
        self.variant = variant
        self.interactive: queue.Queue[Request] = queue.Queue()
        self.bulk: queue.Queue[Request] = queue.Queue()
        self.arrival = threading.Semaphore(0)

    def submit(self, request: Request) -> Future:
        lane = self.interactive if request.lane == "interactive" else self.bulk
        lane.put(request)
        self.arrival.release()
        return request.reply

    def poll(self):
        for lane in (self.interactive, self.bulk):
            try:
                return lane.get_nowait()
            except queue.Empty:
                continue
        return None

    def take(self, deadline: float):
        if self.variant == "fixed":
            left = deadline - time.perf_counter()
            return self.poll() if left > 0 and self.arrival.acquire(timeout=left) else None
        while time.perf_counter() < deadline:
            request = self.poll()
            if request is not None:
                return request
        return None


class Service:
    def __init__(self, model, variant: str, max_batch: int, window: float):
        self.model = model.eval()
        self.lanes = Lanes(variant)
        self.max_batch, self.window = max_batch, window
        self.ready: queue.Queue[list[Request]] = queue.Queue(maxsize=2)
        self.stop = threading.Event()
        self.times: list[float] = []
        self.threads = [threading.Thread(target=self.dispatch, name="dispatch"), threading.Thread(target=self.serve, name="model")]
        for thread in self.threads:
            thread.start()

    def dispatch(self):
        while not self.stop.is_set():
            first = self.lanes.take(time.perf_counter() + 0.5)
            if first is None:
                continue
            batch, deadline = [first], time.perf_counter() + self.window
            while len(batch) < self.max_batch:
                request = self.lanes.take(deadline)
                if request is None:
                    break
                batch.append(request)
            self.ready.put(batch)

    def serve(self):
        while not self.stop.is_set():
            try:
                batch = self.ready.get(timeout=0.2)
            except queue.Empty:
                continue
            begin = time.perf_counter()
            user = torch.from_numpy(np.stack([request.user for request in batch]))
            items = torch.from_numpy(np.stack([request.items for request in batch]))
            with torch.inference_mode():
                scores = self.model(user, items)
                best = scores.topk(10, dim=-1).indices
            chosen = items.gather(1, best).numpy()
            for request, row in zip(batch, chosen):
                request.reply.set_result(row)
            self.times.append(1e3 * (time.perf_counter() - begin))

    def close(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()


def client(service: Service, number: int, until: float, limit: int, latencies: list):
    rng = np.random.default_rng(number)
    lane = "interactive" if number % 3 else "bulk"
    while time.perf_counter() < until and len(service.times) < limit:
        request = Request(rng.normal(size=64).astype(np.float32), rng.integers(0, 20_000, 200), lane)
        service.lanes.submit(request).result(timeout=60)
        latencies.append(1e3 * (time.perf_counter() - request.arrived))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--max-seconds", type=float, default=22)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--max-batch", type=int, default=6)
    parser.add_argument("--window-ms", type=float, default=2.0)
    args = parser.parse_args()
    torch.manual_seed(0)
    service = Service(Ranker(), args.variant, args.max_batch, args.window_ms / 1e3)
    latencies: list[float] = []
    begin = time.perf_counter()
    until = begin + args.max_seconds
    clients = [threading.Thread(target=client, args=(service, n, until, args.steps, latencies)) for n in range(args.clients)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    wall = time.perf_counter() - begin
    service.close()
    times = service.times[5:]
    print(json.dumps({"case": "cb03", "variant": args.variant, "steps": len(times), "mean_ms": statistics.fmean(times),
                      "median_ms": statistics.median(times), "ms_per_request": 1e3 * wall / len(latencies),
                      "latency_median_ms": statistics.median(latencies)}))


if __name__ == "__main__":
    main()
