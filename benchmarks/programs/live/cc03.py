"""Support-assistant replies from a small decoder, with paged key/value storage shared between requests."""

import argparse
import hashlib
import json
import time
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

PAGE = 32
VOCAB = 4096


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = (
            nn.Linear(dim, 4 * dim, bias=False),
            nn.Linear(4 * dim, dim, bias=False),
        )

    def forward(self, x, past, mask):
        t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(t, 3, self.heads, d // self.heads).permute(1, 2, 0, 3)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=1), torch.cat([past[1], v], dim=1)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(a.transpose(0, 1).reshape(t, d))
        return x + self.down(F.silu(self.up(self.n2(x)))), (k, v)


class Decoder(nn.Module):
    def __init__(self, dim=256, depth=6, heads=8, span=1024):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(span, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)

    def forward(self, ids, past):
        start = 0 if past is None else past[0][0].shape[1]
        n = ids.shape[0]
        x = self.tok(ids) + self.pos(torch.arange(start, start + n))
        mask = torch.ones(n, start + n, dtype=torch.bool).tril(diagonal=start) if n > 1 else None
        kept = []
        for i, layer in enumerate(self.layers):
            x, kv = layer(x, None if past is None else past[i], mask)
            kept.append(kv)
        return self.norm(x[-1]) @ self.tok.weight.T, kept


class WordIds:
    def __init__(self):
        self.known = {}

    def encode(self, text):
        out = []
        for word in text.split():
            if word not in self.known:
                self.known[word] = (
                    int.from_bytes(hashlib.md5(word.encode()).digest()[:4], "big") % VOCAB
                )
            out.append(self.known[word])
        return out


class PageTable:
    """Least-recently-used pages of keys and values, addressed by a running digest of the tokens."""

    def __init__(self, capacity=400):
        self.pages, self.capacity = OrderedDict(), capacity
        self.found = self.asked = 0

    @staticmethod
    def addresses(ids):
        digest, out = hashlib.sha1(), []
        for i in range(0, len(ids) - PAGE + 1, PAGE):
            digest.update(np.asarray(ids[i : i + PAGE], np.int32).tobytes())
            out.append(digest.hexdigest())
        return out

    def lookup(self, ids):
        hit = []
        for address in self.addresses(ids[:-1]):
            self.asked += 1
            page = self.pages.get(address)
            if page is None:
                break
            self.found += 1
            self.pages.move_to_end(address)
            hit.append(page)
        if not hit:
            return None, 0
        depth = len(hit[0])
        past = [
            tuple(torch.cat([p[i][j] for p in hit], dim=1) for j in (0, 1)) for i in range(depth)
        ]
        return past, PAGE * len(hit)

    def insert(self, ids, kept):
        for n, address in enumerate(self.addresses(ids)):
            if address not in self.pages:
                span = slice(n * PAGE, (n + 1) * PAGE)
                self.pages[address] = [(k[:, span].clone(), v[:, span].clone()) for k, v in kept]
        while len(self.pages) > self.capacity:
            self.pages.popitem(last=False)


@dataclass
class Request:
    ident: str
    tenant: int
    question: str
    arrived: float = field(default_factory=time.time)


class PromptBuilder:
    def __init__(self, rng, layout):
        words = [f"w{i}" for i in range(900)]
        self.policy = [" ".join(rng.choice(words, 230)) for _ in range(3)]
        self.tools = " ".join(
            f"tool {n} : " + " ".join(rng.choice(words, 26))
            for n in ("find", "refund", "ticket", "mail", "note")
        )
        self.layout = layout

    def sections(self, request):
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(request.arrived))
        return {
            "session": f"request {request.ident} time {stamp} tenant {request.tenant}",
            "policy": self.policy[request.tenant],
            "tools": self.tools,
            "question": f"customer : {request.question} assistant :",
        }

    def build(self, request):
        parts = self.sections(request)
        return " ".join(parts[name] for name in self.layout)


class Engine:
    def __init__(self, model, builder, reply_len):
        self.model, self.builder, self.reply_len = model, builder, reply_len
        self.words, self.table = WordIds(), PageTable()

    @torch.inference_mode()
    def answer(self, request):
        ids = self.words.encode(self.builder.build(request))
        past, done = self.table.lookup(ids)
        logits, past = self.model(torch.tensor(ids[done:]), past)
        self.table.insert(ids, past)
        reply = [int(logits.argmax())]
        while len(reply) < self.reply_len:
            logits, past = self.model(torch.tensor(reply[-1:]), past)
            logits[reply] -= 1.5
            reply.append(int(logits.argmax()))
        return reply


def traffic(rng, n):
    words = [f"q{i}" for i in range(400)]
    for i in range(n):
        yield Request(
            f"r{i:06d}", int(rng.integers(3)), " ".join(rng.choice(words, rng.integers(12, 40)))
        )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    ap.add_argument("--steps", type=int, default=130)
    ap.add_argument("--max-seconds", type=float, default=60)
    ap.add_argument("--reply", type=int, default=10)
    args = ap.parse_args()
    torch.manual_seed(1)
    rng = np.random.default_rng(5)
    layout = ["session", "policy", "tools", "question"]
    if args.variant != "slow":
        layout = ["policy", "tools", "session", "question"]
    engine = Engine(Decoder().eval(), PromptBuilder(rng, layout), args.reply)
    times, began, produced = [], time.perf_counter(), 0
    for i, request in enumerate(traffic(rng, args.steps)):
        t0 = time.perf_counter()
        reply = engine.answer(request)
        produced += len(reply)
        if i >= 5:
            times.append(1e3 * (time.perf_counter() - t0))
        if i % 50 == 0:
            print(f"request {i} reply {reply[:4]}", flush=True)
        if time.perf_counter() - began > args.max_seconds:
            break
    print(
        json.dumps(
            {
                "variant": args.variant,
                "steps": len(times),
                "tokens": produced,
                "mean_ms": round(float(np.mean(times)), 3),
                "median_ms": round(float(np.median(times)), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
