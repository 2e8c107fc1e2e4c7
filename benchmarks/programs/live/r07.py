"""Masked-language-model pre-training; whole-word masking is done on the fly while loading."""
import argparse
import json
import os
import random
import statistics
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD, UNKNOWN, MASK = 0, 1, 2


def parse_args(variants, default_steps, cpu_steps=4):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=None)
    ap.add_argument("--max-seconds", type=float, default=1e9)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    if args.steps is None:
        args.steps = default_steps if args.device == "cuda" else cpu_steps
    return args


def run_loop(args, step, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    count = 0
    for _ in range(warmup):
        step(count)
        count += 1
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step(count)
        count += 1
        marks.append(time.perf_counter())
        if marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - marks[0]
    laps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": os.path.splitext(os.path.basename(__file__))[0],
        "variant": args.variant,
        "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 4),
        "step_ms_median": round(1e3 * statistics.median(laps), 4),
    }), flush=True)
    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        with profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                     schedule=schedule(wait=0, warmup=2, active=4, repeat=1),
                     on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                step(count)
                count += 1
                prof.step()
        sync()


def split_word(word, vocabulary):
    pieces, begin = [], 0
    while begin < len(word):
        end = len(word)
        while end > begin:
            piece = word[begin:end] if begin == 0 else "##" + word[begin:end]
            found = vocabulary.get(piece)
            if found is not None:
                break
            end -= 1
        if found is None:
            return [UNKNOWN]
        pieces.append(found)
        begin = end
    return pieces


def tokenize(words, vocabulary, length):
    tokens, spans = [], []
    for word in words:
        pieces = split_word(word, vocabulary)
        if len(tokens) + len(pieces) > length:
            break
        spans.append((len(tokens), len(tokens) + len(pieces)))
        tokens.extend(pieces)
    tokens.extend([PAD] * (length - len(tokens)))
    return tokens, spans


def mask_words(tokens, spans, budget, vocab, rng):
    rng.shuffle(spans)
    out, places, labels = list(tokens), [], []
    for begin, end in spans:
        if len(places) + end - begin > budget:
            continue
        for at in range(begin, end):
            places.append(at)
            labels.append(tokens[at])
            dice = rng.random()
            if dice < 0.8:
                out[at] = MASK
            elif dice < 0.9:
                out[at] = rng.randrange(5, vocab)
        if len(places) == budget:
            break
    for at in range(len(tokens)):
        if len(places) == budget:
            break
        places.append(at)
        labels.append(tokens[at])
    return out, places, labels


def synthetic_language(size, words, rng):
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = {}
    while len(vocabulary) < size - 5:
        piece = "".join(rng.choices(letters, k=rng.randint(2, 5)))
        if rng.random() < 0.5:
            piece = "##" + piece
        vocabulary.setdefault(piece, len(vocabulary) + 5)
    heads = [p for p in vocabulary if not p.startswith("##")]
    tails = [p[2:] for p in vocabulary if p.startswith("##")]
    corpus = [rng.choice(heads) + "".join(rng.choices(tails, k=rng.randrange(3))) for _ in range(words)]
    return vocabulary, corpus


class MaskedBatches(Dataset):
    def __init__(self, corpus, vocabulary, batch, length, budget, vocab, count):
        self.corpus, self.vocabulary, self.batch, self.length = corpus, vocabulary, batch, length
        self.budget, self.vocab, self.count = budget, vocab, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = random.Random(index)
        rows = []
        for _ in range(self.batch):
            start = rng.randrange(len(self.corpus) - self.length)
            tokens, spans = tokenize(self.corpus[start:start + self.length], self.vocabulary, self.length)
            rows.append(mask_words(tokens, spans, self.budget, self.vocab, rng))
        return tuple(torch.tensor(part) for part in zip(*rows))


class PooledLoader:
    def __init__(self, data, workers, ahead, pin):
        self.data, self.ahead, self.pin = data, ahead, pin
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="loader")

    def fetch(self, index):
        batch = self.data[index]
        return tuple(t.pin_memory() for t in batch) if self.pin else batch

    def __iter__(self):
        pending, indices = deque(), iter(range(len(self.data)))
        try:
            for _ in range(self.ahead):
                pending.append(self.pool.submit(self.fetch, next(indices)))
            for index in indices:
                pending.append(self.pool.submit(self.fetch, index))
                yield pending.popleft().result()
        finally:
            self.pool.shutdown(wait=True, cancel_futures=True)


def pooled_loader(data, pin):
    return PooledLoader(data, workers=4, ahead=8, pin=pin)


def worker_loader(data, pin):
    return DataLoader(data, batch_size=None, num_workers=4, prefetch_factor=2, pin_memory=pin)


class MaskedLM(nn.Module):
    def __init__(self, vocab, length, dim, depth, heads):
        super().__init__()
        self.token = nn.Embedding(vocab, dim)
        self.place = nn.Parameter(torch.randn(length, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens, places):
        h = self.encoder(self.token(tokens) + self.place)
        h = h.gather(1, places.unsqueeze(-1).expand(-1, -1, h.shape[-1]))
        return self.head(h)


class Trainer:
    def __init__(self, device, make_loader):
        self.device = device
        if device == "cuda":
            vocab, length, batch, dim, depth, heads, words = 8192, 512, 64, 512, 8, 8, 500_000
        else:
            vocab, length, batch, dim, depth, heads, words = 500, 32, 4, 32, 2, 2, 5_000
        vocabulary, corpus = synthetic_language(vocab, words, random.Random(5))
        data = MaskedBatches(corpus, vocabulary, batch, length, int(0.15 * length), vocab, 1_000_000)
        self.batches = iter(make_loader(data, device == "cuda"))
        self.model = MaskedLM(vocab, length, dim, depth, heads).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-4, fused=True)

    def step(self, i):
        tokens, places, labels = (t.to(self.device, non_blocking=True) for t in next(self.batches))
        with torch.autocast(self.device, dtype=torch.bfloat16):
            logits = self.model(tokens, places)
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def close(self):
        if hasattr(self.batches, "close"):
            self.batches.close()
        self.batches = None


def main():
    args = parse_args(["slow", "fixed"], 160)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    make_loader = {"slow": pooled_loader, "fixed": worker_loader}[args.variant]
    trainer = Trainer(args.device, make_loader)
    run_loop(args, trainer.step, warmup=6)
    trainer.close()


if __name__ == "__main__":
    main()
