"""A sentence-vector service: clients in threads, one loop that batches and answers."""

import argparse
import base64
import json
import queue
import threading
import time

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()

WORDS, WIDTH, LENGTH, VECTOR, CLIENTS, PER_CALL = 8000, 128, 16, 768, 4, 8


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, VECTOR)

    def forward(self, ids):
        return nn.functional.normalize(self.out(self.body(self.words(ids)).mean(1)), dim=1)


class Call:
    def __init__(self, ids):
        self.ids, self.done, self.body = ids, threading.Event(), None


class Client(threading.Thread):
    """Sends the next call as soon as the last one is answered."""

    def __init__(self, inbox, seed):
        super().__init__(daemon=True)
        self.inbox, self.bytes, self.stop = inbox, 0, False
        self.mixer = torch.Generator().manual_seed(seed)

    def run(self):
        while not self.stop:
            call = Call(torch.randint(0, WORDS, (PER_CALL, LENGTH), generator=self.mixer))
            self.inbox.put(call)
            call.done.wait(5)
            self.bytes += len(call.body or "")


def as_lists(vectors):
    return json.dumps({"data": [{"index": i, "embedding": v} for i, v in enumerate(vectors.tolist())]})


def as_bytes(vectors):
    rows = vectors.numpy()
    data = [{"index": i, "embedding": base64.b64encode(v.tobytes()).decode()} for i, v in enumerate(rows)]
    return json.dumps({"data": data})


class Service:
    def __init__(self, inbox):
        self.inbox = inbox
        self.model = Encoder().to(args.device).eval()
        self.render = as_lists if args.variant == "slow" else as_bytes

    def collect(self):
        calls = [self.inbox.get()]
        while len(calls) < CLIENTS:
            try:
                calls.append(self.inbox.get(timeout=0.002))
            except queue.Empty:
                break
        return calls

    def answer(self):
        calls = self.collect()
        vectors = self.model(torch.cat([call.ids for call in calls])).cpu()
        for call, part in zip(calls, vectors.split(PER_CALL), strict=True):
            call.body = self.render(part)
            call.done.set()


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    inbox = queue.Queue()
    service = Service(inbox)
    clients = [Client(inbox, seed) for seed in range(CLIENTS)]
    for client in clients:
        client.start()
    ends = []
    for step in range(args.steps):
        service.answer()
        ends.append(time.perf_counter())
        if step % 100 == 0:
            print(f"batch {step}: {sum(c.bytes for c in clients) / 1e6:.1f} MB sent", flush=True)
    for client in clients:
        client.stop = True
    half = ends[len(ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
