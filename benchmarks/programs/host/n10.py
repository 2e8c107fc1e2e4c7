"""Whether a word is known is looked up in a list."""

import argparse
import random
import time


class Vocabulary:
    def __init__(self, count):
        self.words = [f"word{i}" for i in range(count)]

    def encode(self, text):
        return [self.words.index(word) if word in self.words else 0 for word in text.split()]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    vocabulary, draw, tokens = Vocabulary(20_000), random.Random(0), 0
    while time.monotonic() < end:
        text = " ".join(f"word{draw.randrange(25_000)}" for _ in range(200))
        tokens += len(vocabulary.encode(text))
    print(tokens)


if __name__ == "__main__":
    main()
