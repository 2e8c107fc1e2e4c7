"""A running mean over all that was seen is computed anew in each marked step."""

import argparse
import time

import numpy as np

import pinchpoint as pp


class History:
    def __init__(self):
        self.seen = np.zeros(0)

    def mean(self, values):
        self.seen = np.concatenate([self.seen, values])
        return np.sort(self.seen)[len(self.seen) // 2]


def base(random):
    return np.sort(np.exp(random.random(100_000)))[0]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=20)
    end = time.monotonic() + args.parse_args().seconds
    history, random, total = History(), np.random.default_rng(0), 0.0
    while time.monotonic() < end:
        total += history.mean(random.random(2000)) + base(random)
        pp.step()
    print(total)


if __name__ == "__main__":
    main()
