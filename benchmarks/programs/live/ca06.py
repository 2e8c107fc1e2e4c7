"""Character-level language model training with validation, early stopping and a weight average."""

import argparse
import json
import logging
import math
import statistics
import time
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("lm")


class Corpus(Dataset):
    """Windows of a synthetic Markov text."""

    def __init__(self, length=400_000, vocab=96, window=192, seed=0):
        gen = torch.Generator().manual_seed(seed)
        table = torch.randint(0, vocab, (vocab, 4), generator=gen)
        pick = torch.randint(0, 4, (length,), generator=gen).tolist()
        table, state, text = table.tolist(), 0, []
        for p in pick:
            state = table[state][p]
            text.append(state)
        self.text, self.window, self.vocab = torch.tensor(text), window, vocab

    def __len__(self):
        return len(self.text) - self.window - 1

    def __getitem__(self, i):
        piece = self.text[i:i + self.window + 1]
        return piece[:-1], piece[1:]


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.n2(x))))


class CharLM(nn.Module):
    def __init__(self, vocab, window, dim=512, depth=3, heads=8):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Parameter(torch.randn(window, dim) * 0.02)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.tok(ids) + self.pos
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Average:
    def __init__(self, model, decay=0.99):
        self.live = list(model.parameters())
        self.kept = [p.detach().clone() for p in self.live]
        self.decay = decay

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.kept, self.live, 1 - self.decay)


class Tracker:
    """Keeps recent losses and says when training diverged."""

    def __init__(self, patience=50):
        self.recent = deque(maxlen=patience)
        self.best = math.inf

    def add(self, loss, norm):
        value = loss.item()
        if not math.isfinite(value) or not math.isfinite(norm.item()):
            raise FloatingPointError(value)
        self.recent.append(value)
        self.best = min(self.best, value)
        log.info("loss %.4f", value)
        return value


@torch.no_grad()
def validate(model, corpus, batches=1):
    model.eval()
    total = 0.0
    for b in range(batches):
        rows = [corpus[1000 * (8 * b + i)] for i in range(8)]
        x, y = torch.stack([r[0] for r in rows]), torch.stack([r[1] for r in rows])
        total += F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten()).item()
    model.train()
    return total / batches


def train(steps, max_seconds):
    torch.manual_seed(0)
    corpus = Corpus()
    loader = DataLoader(corpus, batch_size=12, shuffle=True, num_workers=0, drop_last=True)
    model = CharLM(corpus.vocab, corpus.window)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    average, tracker = Average(model), Tracker()
    times, begin, last = [], time.perf_counter(), time.perf_counter()
    for step, (x, y) in enumerate(loader):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), y.flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        average.update()
        tracker.add(loss, norm)
        if step and step % 40 == 0:
            log.info("valid %.4f", validate(model, corpus))
        now = time.perf_counter()
        times.append(1e3 * (now - last))
        last = now
        if step + 1 >= steps or now - begin > max_seconds:
            break
    return times, tracker.best


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
    ap.add_argument("--steps", type=int, default=130)
    ap.add_argument("--max-seconds", type=float, default=60)
    args = ap.parse_args()
    times, best = train(args.steps, args.max_seconds)
    kept = times[3:] or times
    print(json.dumps({"steps": len(times), "mean_step_ms": round(statistics.fmean(kept), 3),
                      "median_step_ms": round(statistics.median(kept), 3), "best": round(best, 4)}))


if __name__ == "__main__":
    main()
