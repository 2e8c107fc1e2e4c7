"""Each frame is filtered in new arrays of 64 MB, which the kernel hands out page by page."""

import argparse
import time

import numpy as np


def filtered(frame):
    scaled = frame * 0.5
    shifted = scaled + 1.0
    return np.maximum(shifted, 0.2)[::4096].sum()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    frame, total = np.ones(8_000_000), 0.0
    while time.monotonic() < end:
        total += filtered(frame)
    print(total)


if __name__ == "__main__":
    main()
