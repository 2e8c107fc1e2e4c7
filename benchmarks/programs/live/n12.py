"""A moderation service: visitors post comments from threads, one loop scores them in batches."""

import argparse
import json
import queue
import random
import re
import threading
import time

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=150)
args = parser.parse_args()

WORDS, WIDTH, LABELS, BATCH, VISITORS = 4000, 384, 6, 16, 24
NAMES = ["fine", "rude", "threat", "spam", "advert", "unclear"]
WORD = re.compile(r"[a-z]+")


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS + 1, WIDTH, padding_idx=WORDS)
        layer = nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, LABELS)

    def forward(self, ids):
        return self.head(self.body(self.words(ids)).mean(1))


class Comment:
    def __init__(self, text):
        self.text, self.answered, self.answer = text, threading.Event(), None


class Visitor(threading.Thread):
    def __init__(self, inbox, seed):
        super().__init__(daemon=True)
        self.inbox, self.pick, self.stop = inbox, random.Random(seed), False

    def run(self):
        while not self.stop:
            words = [f"{self.pick.choice('abcdefgh')}{'xyzuvw'[self.pick.randrange(6)]}" for _ in range(44)]
            comment = Comment(" ".join(words + ["end"] * self.pick.randrange(4)))
            self.inbox.put(comment)
            comment.answered.wait(10)


class Service:
    def __init__(self, inbox):
        self.inbox, self.lock, self.counts = inbox, threading.Lock(), dict.fromkeys(NAMES, 0)
        self.model = Scorer().to(args.device).eval()
        self.ids = {}

    def tokens(self, text):
        return [self.ids.setdefault(word, len(self.ids) % WORDS) for word in WORD.findall(text.lower())]

    def collect(self):
        return [self.inbox.get(timeout=10) for _ in range(BATCH)]

    def score(self, comments):
        rows = [self.tokens(comment.text) for comment in comments]
        longest = max(len(row) for row in rows)
        ids = torch.tensor([row + [WORDS] * (longest - len(row)) for row in rows])
        with self.lock:
            chances = self.model(ids.to(args.device)).softmax(1).cpu()
        for comment, row in zip(comments, chances, strict=True):
            best = NAMES[row.argmax().item()]
            with self.lock:
                self.counts[best] += 1
            comment.answer = json.dumps(dict(zip(NAMES, row.tolist(), strict=True)))
            comment.answered.set()


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    inbox = queue.Queue()
    service = Service(inbox)
    visitors = [Visitor(inbox, seed) for seed in range(VISITORS)]
    for visitor in visitors:
        visitor.start()
    ends = []
    for step in range(args.steps):
        service.score(service.collect())
        ends.append(time.perf_counter())
        if step % 25 == 0:
            print(f"batch {step} {json.dumps(service.counts)}", flush=True)
    for visitor in visitors:
        visitor.stop = True
    half = ends[len(ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
