"""Four threads parse records in Python, and take turns at its lock."""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor


def parse(number):
    total = 0
    for i in range(40_000):
        total += (i * number) % 7
    return total


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    total = 0
    with ThreadPoolExecutor(4) as pool:
        while time.monotonic() < end:
            total += sum(pool.map(parse, range(64)))
    print(total)


if __name__ == "__main__":
    main()
