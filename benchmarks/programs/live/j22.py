"""Training a next-word model on a corpus of annotated sentences held in memory."""

import argparse
import gc
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

SENTENCES, VOCAB, DIM, BATCH, SPAN = 40_000, 500, 64, 32, 8


class Sentence:
    def __init__(self, number, rng):
        first = rng.randrange(VOCAB)
        self.number = number
        self.words = [{"id": (first + 7 * k) % VOCAB, "span": [k, k + 1]} for k in range(SPAN + 1)]

    def ids(self):
        return [word["id"] for word in self.words]


class Corpus:
    def __init__(self):
        self.rng = random.Random(0)
        self.sentences = [Sentence(n, self.rng) for n in range(SENTENCES)]

    def batch(self):
        picked = self.rng.sample(self.sentences, BATCH)
        return torch.tensor([s.ids() for s in picked])


class NextWord(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, DIM)
        self.memory = nn.GRU(DIM, DIM, batch_first=True)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        return self.head(self.memory(self.words(ids))[0])


class Trial:
    """What one step leaves behind: it refers to itself through its callback."""

    def __init__(self, loss):
        self.loss = loss
        self.on_end = self.describe

    def describe(self):
        return f"loss {self.loss.item():.4f}"


def tidy_each_step(step):
    gc.collect()


def tidy_rarely(step):
    if step % 200 == 0:
        gc.collect()


def main():
    torch.manual_seed(0)
    corpus, model = Corpus(), NextWord().to(args.device)
    tidy = tidy_each_step if args.variant == "slow" else tidy_rarely
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        ids = corpus.batch().to(args.device)
        scores = model(ids[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        trial = Trial(loss.detach())
        if step % 20 == 0:
            print(f"step {step} {trial.on_end()}", flush=True)
        del trial
        tidy(step)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss.item():.5f}")


main()
