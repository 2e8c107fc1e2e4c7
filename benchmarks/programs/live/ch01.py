"""Late-interaction embedding service: batches requests, encodes, answers with JSON bodies."""
import argparse
import collections
import json
import os
import random
import time

import torch
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel
from torch import nn
from torch.nn import functional as F

WORDS = [w + s for w in ("net", "graph", "index", "token", "score", "query", "page", "shard", "cell", "field",
                         "frame", "trail", "model", "layer", "value") for s in ("", "s", "er", "ing", "ed")]


class Passage(BaseModel):
    id: int
    n_tokens: int


class Request(BaseModel):
    id: int
    text: str
    arrived: float


class Tokenizer:
    def __init__(self, words, length):
        self.ids = {w: i + 2 for i, w in enumerate(words)}
        self.length = length
        self.size = len(words) + 2

    def __call__(self, texts):
        out = torch.zeros(len(texts), self.length, dtype=torch.long)
        for row, text in enumerate(texts):
            ids = [self.ids.get(w, 1) for w in text.split()][: self.length]
            out[row, : len(ids)] = torch.tensor(ids)
        return out


class Encoder(nn.Module):
    def __init__(self, vocab, dim=256, heads=4, layers=4, out=128, length=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.pos = nn.Parameter(torch.randn(length, dim) * 0.02)
        block = nn.TransformerEncoderLayer(dim, heads, dim * 4, batch_first=True, dropout=0.0, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.project = nn.Linear(dim, out, bias=False)

    def forward(self, ids):
        x = self.embed(ids) + self.pos[: ids.shape[1]]
        return F.normalize(self.project(self.blocks(x)), dim=-1)


class Service:
    def __init__(self, model, tokenizer, batch, variant):
        self.model, self.tokenizer, self.batch, self.variant = model, tokenizer, batch, variant
        self.waiting = collections.deque()
        self.served = 0

    def submit(self, request):
        self.waiting.append(request)

    @torch.inference_mode()
    def encode(self, texts):
        return self.model(self.tokenizer(texts))

    def payload(self, requests, vectors):
        now = time.time()
        return [
            {"meta": Passage(id=r.id, n_tokens=len(v)).model_dump(), "latency": now - r.arrived, "vectors": v}
            for r, v in zip(requests, vectors.mul(1e4).round().long().tolist())
        ]

    def respond(self, content):
        if self.variant == "slow":
            content = jsonable_encoder(content)
        return json.dumps(content, separators=(",", ":")).encode()

    def tick(self):
        requests = [self.waiting.popleft() for _ in range(min(self.batch, len(self.waiting)))]
        vectors = self.encode([r.text for r in requests])
        body = self.respond(self.payload(requests, vectors))
        self.served += len(requests)
        return len(body)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()
    os.sched_setaffinity(0, {int(os.environ.get("REPLICA", 0)) % os.cpu_count()})  # one replica a core
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    tokenizer = Tokenizer(WORDS, 48)
    service = Service(Encoder(tokenizer.size).eval(), tokenizer, 16, args.variant)
    times, sent, number = [], 0, 0
    start = time.perf_counter()
    while len(times) < args.steps and time.perf_counter() - start < args.max_seconds:
        while len(service.waiting) < 24:
            text = " ".join(random.choices(WORDS, k=random.randint(40, 56)))
            service.submit(Request(id=number, text=text, arrived=time.time()))
            number += 1
        t = time.perf_counter()
        sent += service.tick()
        times.append((time.perf_counter() - t) * 1e3)
    kept = sorted(times[3:])
    print(json.dumps({"mean_ms": round(sum(kept) / len(kept), 2), "median_ms": round(kept[len(kept) // 2], 2),
                      "steps": len(times), "served": service.served}))


if __name__ == "__main__":
    main()
