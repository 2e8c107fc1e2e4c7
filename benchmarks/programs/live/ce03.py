"""Web-text cleaning: normalise, filter, near-duplicate signatures, packed token blocks."""
import argparse
import html
import json
import random
import re
import statistics
import time
import unicodedata
from collections import Counter

import numpy as np
import xxhash

WORDS = ("model data table river market winter signal engine paper garden system value report light "
         "school future number public energy people story method water music street council train").split()
TAGS = re.compile(r"<[^<>]{1,200}>")
URLS = re.compile(r"https?://\S+")
TAIL = re.compile(r"[ \t\u00a0]+$", re.M)
GAPS = re.compile(r"[ \t\u00a0]+")
BLANKS = re.compile(r"\n{3,}")
PIECES = re.compile(r"\w+|[^\w\s]")
SPACES = " \t\u00a0"


def paragraph(rng, n):
    words = [rng.choice(WORDS) for _ in range(n)]
    for at in range(9, n, 17):
        words[at] = f"<b>{words[at]}</b>" if at % 2 else "https://example.org/" + words[at]
    return " ".join(words).capitalize() + "." + " " * rng.randint(0, 3)


def ledger(rng):
    rows = []
    for _ in range(rng.randint(2, 3)):
        name, amount = rng.choice(WORDS), rng.randint(10, 99999)
        rows.append(f"{name}{' ' * rng.randint(1800, 3000)}{amount}")
    return "\n".join(rows)


def crawl(seed):
    rng = random.Random(seed)
    while True:
        parts = [paragraph(rng, rng.randint(40, 140)) for _ in range(rng.randint(2, 6))]
        if rng.random() < 0.08:
            parts.insert(rng.randrange(len(parts)), ledger(rng))
        yield "\n\n".join(parts) + "\n&copy; Example &amp; Sons\n"


def trim_pattern(text):
    return TAIL.sub("", text)


def trim_lines(text):
    return "\n".join(line.rstrip(SPACES) for line in text.split("\n"))


TRIM = {"slow": trim_pattern, "fixed": trim_lines}


class Cleaner:
    def __init__(self, trim):
        self.passes = (html.unescape, self.normalise, self.strip_markup, trim, self.squeeze)

    @staticmethod
    def normalise(text):
        return unicodedata.normalize("NFC", text).replace("\r\n", "\n")

    @staticmethod
    def strip_markup(text):
        return URLS.sub("", TAGS.sub("", text))

    @staticmethod
    def squeeze(text):
        return BLANKS.sub("\n\n", GAPS.sub(" ", text)).strip()

    def __call__(self, text):
        for apply in self.passes:
            text = apply(text)
        return text


class Signatures:
    """Min-wise signatures over word shingles, banded into buckets."""

    def __init__(self, perms=48, bands=12, width=4, seed=3):
        rng = np.random.default_rng(seed)
        self.a = rng.integers(1, 2**31, perms, dtype=np.uint64) | np.uint64(1)
        self.b = rng.integers(0, 2**31, perms, dtype=np.uint64)
        self.bands, self.width = bands, width
        self.buckets = [set() for _ in range(bands)]

    def sign(self, words):
        grams = {" ".join(words[i : i + self.width]) for i in range(max(1, len(words) - self.width + 1))}
        base = np.fromiter((xxhash.xxh32_intdigest(g.encode()) for g in grams), np.uint64, len(grams))
        return (base[:, None] * self.a + self.b).min(0)

    def seen(self, words):
        rows = self.sign(words).reshape(self.bands, -1)
        hit = False
        for bucket, row in zip(self.buckets, rows):
            key = row.tobytes()
            hit |= key in bucket
            if len(bucket) > 20000:
                bucket.clear()
            bucket.add(key)
        return hit


def quality(words):
    if len(words) < 30:
        return 0.0
    counts = Counter(words)
    top = sum(n for _, n in counts.most_common(5)) / len(words)
    alpha = sum(map(str.isalpha, words)) / len(words)
    return alpha * (1 - top)


class Packer:
    def __init__(self, block=512):
        self.ids, self.block, self.rest, self.emitted = {}, block, [], 0

    def add(self, pieces):
        ids = self.ids
        self.rest.extend([ids.setdefault(p, len(ids)) for p in pieces])
        whole = len(self.rest) // self.block * self.block
        if whole:
            self.emitted += np.asarray(self.rest[:whole], np.int32).reshape(-1, self.block).shape[0]
            self.rest = self.rest[whole:]


def process(batch, clean, signatures, packer):
    kept = 0
    for raw in batch:
        text = clean(raw)
        pieces = PIECES.findall(text.lower())
        if quality(pieces) < 0.3 or signatures.seen(pieces):
            continue
        packer.add(pieces)
        kept += 1
    return kept


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=23)
    ap.add_argument("--batch", type=int, default=48)
    args = ap.parse_args()
    source = crawl(11)
    pool = [next(source) for _ in range(960)]
    clean, signatures, packer = Cleaner(TRIM[args.variant]), Signatures(), Packer()
    times, kept = [], 0
    began = time.perf_counter()
    for step in range(args.steps):
        at = step * args.batch % len(pool)
        t0 = time.perf_counter()
        kept += process(pool[at : at + args.batch], clean, signatures, packer)
        times.append((time.perf_counter() - t0) * 1e3)
        if time.perf_counter() - began > args.max_seconds:
            break
    print(json.dumps({"case": "ce03", "variant": args.variant, "steps": len(times), "kept": kept,
                      "blocks": packer.emitted, "mean_step_ms": round(statistics.fmean(times), 2),
                      "median_step_ms": round(statistics.median(times), 2)}))


if __name__ == "__main__":
    main()
