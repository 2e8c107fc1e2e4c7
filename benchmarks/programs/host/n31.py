"""torch: texts are taken apart in Python for long, before a short training; NumPy judges it."""

import argparse
import random
import time

import numpy as np
import torch


def tokens(text, vocabulary):
    out = []
    for word in text.split():
        if word not in vocabulary:
            vocabulary[word] = len(vocabulary)
        out.append(vocabulary[word] % 1000)
    return out


def prepare(seconds):
    draw, vocabulary, texts, end = random.Random(0), {}, [], time.monotonic() + seconds
    while time.monotonic() < end:
        texts.append(tokens(" ".join(str(draw.randrange(5000)) for _ in range(400)), vocabulary))
    return torch.tensor([row[:256] for row in texts])


def scores(logits, truth, seconds):
    end, best = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        for threshold in np.linspace(logits.min(), logits.max(), 50):
            best = max(best, float(((logits > threshold) == truth).mean()))
    return best


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=24)
    seconds = args.parse_args().seconds
    rows = prepare(seconds / 2)
    model = torch.nn.Sequential(
        torch.nn.Embedding(1000, 64), torch.nn.Flatten(), torch.nn.Linear(64 * 256, 1)
    )
    optimizer, end = torch.optim.SGD(model.parameters(), 0.01), time.monotonic() + seconds / 5
    while time.monotonic() < end:
        batch = rows[torch.randint(len(rows), (32,))]
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        logits = np.concatenate([model(part).numpy() for part in rows[:4096].split(256)])
    print(scores(logits, logits > 0, seconds / 4))


if __name__ == "__main__":
    main()
