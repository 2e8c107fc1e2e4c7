"""Images are sent to a pool and back, for a mean that takes less than sending them."""

import argparse
import time
from multiprocessing import Pool

import numpy as np


def brightness(image):
    return image - image.mean()


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    images = [np.random.default_rng(i).random((700, 700)) for i in range(16)]
    total = 0.0
    with Pool(2) as pool:
        while time.monotonic() < end:
            total += sum(float(one[0, 0]) for one in pool.map(brightness, images))
    print(total)


if __name__ == "__main__":
    main()
