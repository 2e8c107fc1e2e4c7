"""Passage retrieval service: a batching worker encodes questions, searches, and answers with JSON."""
import argparse
import json
import queue
import statistics
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


class QuestionEncoder(nn.Module):
    def __init__(self, vocab=8000, dim=384, layers=2, heads=6):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim, padding_idx=0)
        self.pos = nn.Parameter(torch.randn(1, 64, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, ids):
        mask = ids != 0
        h = self.tok(ids) + self.pos[:, : ids.shape[1]]
        h = self.enc(h, src_key_padding_mask=~mask)
        w = mask.unsqueeze(-1).to(h.dtype)
        return (h * w).sum(1) / w.sum(1).clamp_min(1)


def cos_sim(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Cosine similarity of every row of a with every row of b."""
    return F.normalize(a, p=2, dim=1) @ F.normalize(b, p=2, dim=1).T


def dot_score(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b.T


@dataclass
class PassageIndex:
    vectors: torch.Tensor
    titles: list
    score: object = cos_sim

    def search(self, queries: torch.Tensor, k: int):
        scores = self.score(queries, self.vectors)
        return torch.topk(scores, k, dim=1)


@dataclass
class Request:
    text: str
    k: int = 10
    reply: Future = field(default_factory=Future)


class Tokenizer:
    def __init__(self, vocab=8000):
        self.vocab = vocab

    def __call__(self, texts):
        rows = [[1 + (sum(map(ord, w)) * 2654435761) % (self.vocab - 1) for w in t.split()][:32] for t in texts]
        width = max(map(len, rows))
        return torch.tensor([r + [0] * (width - len(r)) for r in rows])


class Service:
    def __init__(self, encoder, index, max_batch=16, max_wait=0.004):
        self.encoder, self.index = encoder.eval(), index
        self.tokenizer = Tokenizer()
        self.inbox: queue.Queue = queue.Queue()
        self.max_batch, self.max_wait = max_batch, max_wait
        self.batch_ms = []
        self.thread = threading.Thread(target=self._loop, daemon=True)

    def start(self):
        self.thread.start()

    def submit(self, request: Request) -> Future:
        self.inbox.put(request)
        return request.reply

    def stop(self):
        self.inbox.put(None)
        self.thread.join()

    def _collect(self):
        first = self.inbox.get()
        if first is None:
            return None
        batch, until = [first], time.perf_counter() + self.max_wait
        while len(batch) < self.max_batch:
            left = until - time.perf_counter()
            if left <= 0:
                break
            try:
                item = self.inbox.get(timeout=left)
            except queue.Empty:
                break
            if item is None:
                self.inbox.put(None)
                break
            batch.append(item)
        return batch

    @torch.inference_mode()
    def _answer(self, batch):
        ids = self.tokenizer([r.text for r in batch])
        emb = F.normalize(self.encoder(ids), dim=1)
        top = self.index.search(emb, max(r.k for r in batch))
        for r, scores, rows in zip(batch, top.values.tolist(), top.indices.tolist()):
            hits = [{"title": self.index.titles[j], "score": round(s, 4)} for s, j in zip(scores[: r.k], rows)]
            r.reply.set_result(json.dumps({"query": r.text, "hits": hits}))

    def _loop(self):
        while (batch := self._collect()) is not None:
            t0 = time.perf_counter()
            self._answer(batch)
            self.batch_ms.append((time.perf_counter() - t0) * 1e3)


WORDS = "what who where when river city capital law energy protein orbit music election storm bridge trade".split()


def question(rng):
    n = int(torch.randint(6, 24, (1,), generator=rng))
    return " ".join(WORDS[int(i)] for i in torch.randint(0, len(WORDS), (n,), generator=rng))


def load_index(args):
    g = torch.Generator().manual_seed(11)
    vectors = torch.randn(args.passages, 384, generator=g)
    titles = [f"passage {i}" for i in range(args.passages)]
    if args.variant == "fixed":
        return PassageIndex(F.normalize(vectors, dim=1), titles, dot_score)
    return PassageIndex(vectors, titles)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--max-seconds", type=float, default=120)
    p.add_argument("--passages", type=int, default=60000)
    p.add_argument("--clients", type=int, default=16)
    args = p.parse_args()
    torch.manual_seed(0)
    service = Service(QuestionEncoder(), load_index(args), max_batch=args.clients)
    service.start()
    rng = torch.Generator().manual_seed(5)
    begin, answered = time.perf_counter(), 0
    digest = 0
    for _ in range(args.steps):
        futures = [service.submit(Request(question(rng))) for _ in range(args.clients)]
        for f in futures:
            digest = (digest + len(json.loads(f.result())["hits"])) % 100003
            answered += 1
        if time.perf_counter() - begin > args.max_seconds:
            break
    wall = time.perf_counter() - begin
    service.stop()
    t = service.batch_ms[5:] or service.batch_ms
    print(json.dumps({"steps": len(service.batch_ms), "mean_ms": round(statistics.fmean(t), 3),
                      "median_ms": round(statistics.median(t), 3), "answered": answered,
                      "qps": round(answered / wall, 1), "digest": digest}))


if __name__ == "__main__":
    main()
