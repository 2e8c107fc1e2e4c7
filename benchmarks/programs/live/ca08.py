"""Text generation service: continuous batching over slots with a preallocated key/value cache."""

import argparse
import json
import random
import statistics
import time
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM, HEADS, LAYERS, SLOTS, ROOM = 8192, 1024, 16, 5, 32, 160
EOS = 3


@dataclass
class Job:
    rid: int
    prompt: list
    limit: int
    out: list = field(default_factory=list)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.up, self.down = nn.Linear(DIM, 4 * DIM, bias=False), nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x, keys, values, slot, where, bias):
        q, k, v = self.qkv(self.n1(x)).view(SLOTS, 3, HEADS, -1).unbind(1)
        keys[slot, :, where] = k
        values[slot, :, where] = v
        y = F.scaled_dot_product_attention(q.unsqueeze(2), keys, values, attn_mask=bias)
        x = x + self.out(y.reshape(SLOTS, DIM))
        return x + self.down(F.relu(self.up(self.n2(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(ROOM, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(DIM), nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, ids, where, cache, slot):
        seen = torch.arange(ROOM)[None] <= where[:, None]
        bias = torch.zeros(SLOTS, 1, 1, ROOM, dtype=torch.bfloat16).masked_fill(~seen[:, None, None], -1e4)
        x = self.tok(ids) + self.pos(where)
        for layer, (keys, values) in zip(self.layers, cache):
            x = layer(x, keys, values, slot, where, bias)
        return self.head(self.norm(x))


class Engine:
    """Every step feeds one token to every slot: the next of its prompt, or the one just chosen."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = Decoder().to(torch.bfloat16).eval()
        shape = (SLOTS, HEADS, ROOM, DIM // HEADS)
        self.cache = [(torch.zeros(shape, dtype=torch.bfloat16), torch.zeros(shape, dtype=torch.bfloat16))
                      for _ in range(LAYERS)]
        self.slot = torch.arange(SLOTS)
        self.jobs, self.waiting, self.finished = [None] * SLOTS, [], []
        self.ids, self.where = [0] * SLOTS, [0] * SLOTS

    def admit(self):
        for s, job in enumerate(self.jobs):
            if job is None and self.waiting:
                job = self.waiting.pop()
                self.jobs[s], self.ids[s], self.where[s] = job, job.prompt[0], 0

    def choose(self, logits, temperature=0.8, among=40):
        best, token = logits.topk(among, dim=-1)
        pick = torch.multinomial((best / temperature).softmax(-1), 1)
        return token.gather(1, pick).squeeze(1).tolist()

    def advance(self, chosen):
        for s, job in enumerate(self.jobs):
            if job is None:
                continue
            self.where[s] += 1
            if self.where[s] < len(job.prompt):
                self.ids[s] = job.prompt[self.where[s]]
                continue
            job.out.append(chosen[s])
            self.ids[s] = chosen[s]
            if chosen[s] == EOS or len(job.out) >= job.limit or self.where[s] >= ROOM - 1:
                self.finished.append(job)
                self.jobs[s], self.where[s] = None, 0

    @torch.inference_mode()
    def step(self):
        self.admit()
        logits = self.model(torch.tensor(self.ids), torch.tensor(self.where), self.cache, self.slot)
        self.advance(self.choose(logits.float()))


def arrivals(seed=11):
    rng = random.Random(seed)
    rid = 0
    while True:
        rid += 1
        yield Job(rid, [rng.randrange(8, VOCAB) for _ in range(rng.randint(8, 48))], rng.randint(24, 110))


def serve(steps, max_seconds):
    engine, source = Engine(), arrivals()
    times, begin = [], time.perf_counter()
    for _ in range(steps):
        t0 = time.perf_counter()
        while len(engine.waiting) < 16:
            engine.waiting.insert(0, next(source))
        engine.step()
        times.append(1e3 * (time.perf_counter() - t0))
        if time.perf_counter() - begin > max_seconds:
            break
    return times, len(engine.finished)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
    ap.add_argument("--steps", type=int, default=1000)
    ap.add_argument("--max-seconds", type=float, default=60)
    args = ap.parse_args()
    times, finished = serve(args.steps, args.max_seconds)
    kept = times[5:] or times
    print(json.dumps({"steps": len(times), "mean_step_ms": round(statistics.fmean(kept), 3),
                      "median_step_ms": round(statistics.median(kept), 3), "finished": finished}))


if __name__ == "__main__":
    main()
