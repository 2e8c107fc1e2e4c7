"""Four workers share files of which one is far larger than the others."""

import argparse
import time
from multiprocessing import Pool


def count(lines):
    found = 0
    for i in range(lines):
        found += i % 13 == 0
    return found


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    lines = int(args.parse_args().seconds * 12_000_000)
    begin = time.monotonic()
    with Pool(4) as pool:
        print(sum(pool.map(count, [lines, *[lines // 40] * 7], chunksize=2)))
    print(f"{time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
