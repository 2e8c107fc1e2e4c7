"""Scoring customer messages: text to sub-word pieces, then an encoder on the device."""

import argparse
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--max-seconds", type=float, default=20)
args = parser.parse_args()

GPU = args.device.startswith("cuda")
WIDTH, HEADS, LAYERS = (768, 12, 10) if GPU else (48, 4, 2)
MESSAGES, LONGEST = (16, 384) if GPU else (2, 64)
WORDS = 150 if GPU else 20
WARM = 5
DTYPE = torch.bfloat16 if GPU else torch.float32


def sync():
    if GPU:
        torch.cuda.synchronize()


class Language:
    """Made-up words; a few are very common, as in any language."""

    def __init__(self, size=8000):
        self.dice = random.Random(8)
        parts = ["ba", "ter", "mon", "is", "ing", "pre", "lo", "ca", "tion", "er", "un", "dis", "ly", "s", "ment"]
        self.words = ["".join(self.dice.choices(parts, k=self.dice.randint(1, 5))) for _ in range(size)]

    def message(self):
        size = len(self.words)
        return " ".join(self.words[int(size ** self.dice.random()) - 1] for _ in range(WORDS))


class Pieces:
    """Byte-pair pieces, learnt from the words given."""

    def __init__(self, words, merges=250):
        sample = [list(word) for word in words[:300]]
        self.rank = {}
        for number in range(merges):
            count = {}
            for word in sample:
                for pair in zip(word, word[1:]):
                    count[pair] = count.get(pair, 0) + 1
            if not count:
                break
            best = max(count, key=count.get)
            self.rank[best] = number
            sample = [self.join(word, best) for word in sample]
        names = sorted({a + b for a, b in self.rank} | set("abcdefghijklmnopqrstuvwxyz"))
        self.number = {name: index + 1 for index, name in enumerate(names)}

    @staticmethod
    def join(symbols, pair):
        result, place = [], 0
        while place < len(symbols):
            if place + 1 < len(symbols) and (symbols[place], symbols[place + 1]) == pair:
                result.append(symbols[place] + symbols[place + 1])
                place += 2
            else:
                result.append(symbols[place])
                place += 1
        return result

    def word(self, text):
        symbols = list(text)
        while len(symbols) > 1:
            pair = min(zip(symbols, symbols[1:]), key=lambda p: self.rank.get(p, 1 << 30))
            if pair not in self.rank:
                break
            symbols = self.join(symbols, pair)
        return [self.number[symbol] for symbol in symbols]

    def encode(self, message):
        ids = []
        for text in message.split():
            ids.extend(self.word(text))
        return (ids + [0] * LONGEST)[:LONGEST]


class KnownPieces(Pieces):
    def __init__(self, words):
        super().__init__(words)
        self.known = {}

    def word(self, text):
        if text not in self.known:
            self.known[text] = super().word(text)
        return self.known[text]


class Scorer(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return F.softmax(self.head(x.mean(1)).float(), dim=-1)


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    language = Language()
    pieces = (Pieces if args.variant == "slow" else KnownPieces)(language.words)
    model = Scorer(len(pieces.number) + 1).to(args.device, DTYPE).eval()
    inbox = [language.message() for _ in range(600)]
    begin = start = time.perf_counter()
    for step in range(1, args.steps + 1):
        messages = language.dice.sample(inbox, MESSAGES)
        ids = torch.tensor([pieces.encode(message) for message in messages])
        verdict = model(ids.to(args.device)).argmax(1).tolist()
        if step % 50 == 0:
            print(f"batch {step} first verdict {verdict[0]}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if step > WARM and time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
