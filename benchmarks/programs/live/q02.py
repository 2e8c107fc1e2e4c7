"""Scores support tickets by urgency: four front ends put tickets on a queue, one loop batches and answers."""

import argparse
import queue
import random
import threading
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()

MAX_BATCH = 16
WINDOW = 0.015
inbox = queue.Queue()
stop = threading.Event()


class Ticket:
    def __init__(self, tokens):
        self.tokens = tokens
        self.done = threading.Event()
        self.score = None


class Scorer(nn.Module):
    def __init__(self, vocab=8000, width=160):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 4, 512, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)).mean(1)).squeeze(-1)


def client(seed):
    rng = random.Random(seed)
    while not stop.is_set():
        tickets = [Ticket([rng.randrange(8000) for _ in range(16)]) for _ in range(8)]
        for ticket in tickets:
            inbox.put(ticket)
        for ticket in tickets:
            ticket.done.wait(timeout=5)


def collect_slow():
    """Waits for a first ticket, gives others a moment to arrive, then takes what is there."""
    batch = [inbox.get()]
    time.sleep(WINDOW)
    while len(batch) < MAX_BATCH:
        try:
            batch.append(inbox.get_nowait())
        except queue.Empty:
            break
    return batch


def collect_fixed():
    """Waits for others only while the batch is not full."""
    batch = [inbox.get()]
    until = time.perf_counter() + WINDOW
    while len(batch) < MAX_BATCH:
        try:
            batch.append(inbox.get(timeout=max(0.0, until - time.perf_counter())))
        except queue.Empty:
            break
    return batch


collect = collect_slow if args.variant == "slow" else collect_fixed


@torch.inference_mode()
def answer(model, batch, device):
    tokens = torch.tensor([t.tokens for t in batch], device=device)
    scores = torch.sigmoid(model(tokens)).tolist()
    for ticket, score in zip(batch, scores):
        ticket.score = score
        ticket.done.set()


def main():
    torch.manual_seed(0)
    device = torch.device(args.device)
    model = Scorer().to(device).eval()
    clients = [threading.Thread(target=client, args=(i,), daemon=True) for i in range(4)]
    for c in clients:
        c.start()
    times, sizes = [], []
    for _ in range(args.steps):
        start = time.perf_counter()
        batch = collect()
        answer(model, batch, device)
        sizes.append(len(batch))
        times.append(time.perf_counter() - start)
    stop.set()
    print(f"mean batch {sum(sizes) / len(sizes):.1f}")
    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


main()
