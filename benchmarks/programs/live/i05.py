"""Scoring a document collection with a language model: mean log-likelihood per document."""

import argparse
import json
import queue
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--max-seconds", type=float, default=14)
args = parser.parse_args()

GPU = args.device == "cuda"
DIM, LAYERS, HEADS, VOCAB, BATCH, LO, HI = (
    (8192, 3, 64, 32000, 8, 1920, 2048) if GPU else (64, 2, 2, 128, 2, 24, 32)
)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.proj = nn.Linear(DIM, DIM, bias=False)
        self.up = nn.Linear(DIM, 4 * DIM, bias=False)
        self.down = nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids):
        logits = self.head(self.norm(self.layers(self.tok(ids[:, :-1]))))
        nll = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        return nll.view(len(ids), -1).float()


def documents(count, seed):
    rng = np.random.default_rng(seed)
    for number in range(count):
        length = int(rng.integers(LO, HI))
        yield number, (rng.zipf(1.4, length) % VOCAB).tolist()


def collate(rows):
    longest = max(len(tokens) for _, tokens in rows)
    longest = -(-longest // 8) * 8 + 1
    padded = [tokens + [0] * (longest - len(tokens)) for _, tokens in rows]
    lengths = [len(tokens) for _, tokens in rows]
    return [number for number, _ in rows], torch.tensor(padded), torch.tensor(lengths)


class ResultWriter(threading.Thread):
    def __init__(self, lock):
        super().__init__(daemon=True)
        self.inbox, self.lock, self.bytes = queue.Queue(), lock, 0

    def run(self):
        while (row := self.inbox.get()) is not None:
            with self.lock:
                self.bytes += len(json.dumps(row))


def batches(count):
    """Reader thread with a queue of ready batches."""
    ready = queue.Queue(maxsize=4)

    def read():
        rows = []
        for doc in documents(count * BATCH, 3):
            rows.append(doc)
            if len(rows) == BATCH:
                ready.put(collate(rows))
                rows = []
        ready.put(None)

    threading.Thread(target=read, daemon=True).start()
    return iter(ready.get, None)


@torch.inference_mode()
def main():
    torch.manual_seed(6)
    torch.set_default_dtype(torch.bfloat16 if GPU else torch.float32)
    with torch.device(args.device):
        model = Scorer().eval()
    lock = threading.Lock()
    writer = ResultWriter(lock)
    writer.start()
    begin = time.perf_counter()
    steps, mean = 0, 0.0
    for numbers, ids, lengths in batches(args.steps):
        nll = model(ids.to(args.device)).cpu()
        for number, row, length in zip(numbers, nll, lengths.tolist()):
            score = row[: length - 1].mean().item()
            mean += (score - mean) / (steps * BATCH + 1)
            with lock:
                writer.inbox.put({"doc": number, "nll": score, "tokens": length})
        steps += 1
        if steps % 20 == 0:
            if GPU:
                torch.cuda.empty_cache()
            print(f"batch {steps} nll {mean:.4f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    writer.inbox.put(None)
    writer.join()
    print(f"done steps={steps} ms_per_step={1e3 * took / steps:.2f} loss={mean:.5f}")


if __name__ == "__main__":
    main()
